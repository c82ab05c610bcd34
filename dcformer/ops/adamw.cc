#include "dcformer/ops/adamw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/adamw_kernels.h"

namespace dcformer {
namespace {

constexpr int64_t kGrain = 65536;
constexpr int64_t kSquares = 4096;

}  // namespace

void adamw(Context& context, std::span<float> w, std::span<const float> g, std::span<float> m,
           std::span<float> v, const AdamWStep& step) {
  require(g.size() == w.size() && m.size() == w.size() && v.size() == w.size(),
          "adamw: expected {} gradients and moments, got {}, {} and {}", w.size(), g.size(),
          m.size(), v.size());
  const auto number = static_cast<double>(step.number);
  const AdamWFactors factors{
      static_cast<float>(step.gradient_scale),
      static_cast<float>(step.beta1),
      static_cast<float>(1 - step.beta1),
      static_cast<float>(step.beta2),
      static_cast<float>(1 - step.beta2),
      static_cast<float>(step.learning_rate / (1 - std::pow(step.beta1, number))),
      static_cast<float>(1 / (1 - std::pow(step.beta2, number))),
      static_cast<float>(step.eps),
      static_cast<float>(step.learning_rate * step.weight_decay)};
  parallel_chunks(context, static_cast<int64_t>(w.size()), kGrain, [&](int64_t begin, int64_t end) {
    adamw_range(w.data() + begin, g.data() + begin, m.data() + begin, v.data() + begin, end - begin,
                factors);
  });
}

double sum_of_squares(Context& context, std::span<const float> x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<double> parts(static_cast<size_t>((n + kGrain - 1) / kGrain));
  parallel_chunks(context, n, kGrain, [&](int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t i = begin; i < end; i += kSquares)
      sum += static_cast<double>(sum_of_squares_range(x.data() + i, std::min(kSquares, end - i)));
    parts[static_cast<size_t>(begin / kGrain)] = sum;
  });
  double total = 0;
  for (double part : parts) total += part;
  return total;
}

}  // namespace dcformer
