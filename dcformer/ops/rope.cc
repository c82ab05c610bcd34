#include "dcformer/ops/rope.h"

#include <algorithm>
#include <cmath>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/lanes.h"
#include "dcformer/ops/rope_kernels.h"

namespace dcformer {

RopeTable::RopeTable(int64_t n_position, int64_t rotary_dim, double base)
    : n_position_(n_position), rotary_dim_(rotary_dim) {
  require(rotary_dim >= 0 && rotary_dim % 2 == 0,
          "rope: rotary width is {}, expected an even number", rotary_dim);
  const int64_t half = rotary_dim / 2;
  cosine_.resize(static_cast<size_t>(n_position * half));
  sine_.resize(cosine_.size());
  for (int64_t d = 0; d < half; ++d) {
    const double frequency =
        std::pow(base, -2.0 * static_cast<double>(d) / static_cast<double>(rotary_dim));
    for (int64_t p = 0; p < n_position; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cosine_[static_cast<size_t>(p * half + d)] = static_cast<float>(std::cos(angle));
      sine_[static_cast<size_t>(p * half + d)] = static_cast<float>(std::sin(angle));
    }
  }
}

void rope(Context& context, HeadView<const float> x, std::span<const int64_t> positions,
          const RopeTable& table, RopeDirection direction, Heads y) {
  require(static_cast<int64_t>(positions.size()) == x.n_token,
          "rope: expected {} positions, got {}", x.n_token, positions.size());
  require(table.rotary_dim() <= x.head_dim, "rope: rotary width {} exceeds the head size {}",
          table.rotary_dim(), x.head_dim);
  for (int64_t p : positions)
    require(p >= 0 && p < table.n_position(),
            "rope: position {} is outside the table of {} positions", p, table.n_position());
  const float sign = direction == RopeDirection::forward ? 1.0f : -1.0f;
  visit_dtype(y.dtype, "rope", [&](auto type) {
    using T = decltype(type);
    const auto out = y.typed<T>();
    parallel_chunks(
        context, x.n_token, row_grain(x.n_head * x.head_dim), [&](int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t)
            for (int64_t h = 0; h < x.n_head; ++h)
              rope_head<T>(x.at(t, h), table.cosine(positions[t]), table.sine(positions[t]), sign,
                           out.at(t, h), table.rotary_dim() / 2, x.head_dim);
        });
  });
}

}  // namespace dcformer
