#include "dcformer/ops/dropout.h"

#include <cmath>

#include "dcformer/base/check.h"
#include "dcformer/base/random.h"
#include "dcformer/ops/lanes.h"

namespace dcformer {
namespace {

// Keeps the masks apart from whatever else is drawn with the same seed.
constexpr uint32_t kStream = 0x64726F70;

template <typename T>
void drop_row(const DropoutMask& mask, uint32_t token, T* x, int64_t n) {
  const auto threshold = static_cast<uint32_t>(std::ldexp(mask.rate, 32));
  const auto scale = static_cast<float>(1 / (1 - mask.rate));
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(mask.seed) ^ kStream,
                                       static_cast<uint32_t>(mask.seed >> 32)};
  for (int64_t c = 0; c < n; c += 4) {
    const auto words = philox(
        {static_cast<uint32_t>(c / 4), token, mask.site, static_cast<uint32_t>(mask.step)}, key);
    for (int64_t i = 0; i < std::min<int64_t>(4, n - c); ++i) {
      const bool kept = words[static_cast<size_t>(i)] >= threshold;
      x[c + i] = static_cast<T>(kept ? static_cast<float>(x[c + i]) * scale : 0.0f);
    }
  }
}

}  // namespace

void dropout(Context& context, const DropoutMask& mask, Matrix x) {
  require(mask.rate >= 0 && mask.rate < 1, "dropout: rate {}, expected at least 0 and below 1",
          mask.rate);
  if (mask.rate == 0) return;
  visit_dtype(x.dtype, "dropout", [&](auto type) {
    using T = decltype(type);
    const MatrixView<T> view = x.typed<T>();
    parallel_chunks(context, view.rows, row_grain(view.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        drop_row(mask, static_cast<uint32_t>(mask.first_token + r), view.row(r), view.cols);
    });
  });
}

}  // namespace dcformer
