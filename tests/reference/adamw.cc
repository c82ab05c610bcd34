#include "tests/reference/adamw.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dcformer::reference {

void adamw(AdamWState& state, const std::vector<double>& gradient, int64_t update, double rate,
           const AdamW& recipe, bool decay) {
  const double t = static_cast<double>(update);
  for (size_t i = 0; i < gradient.size(); ++i) {
    double& p = state.parameter[i];
    double& m = state.first_moment[i];
    double& v = state.second_moment[i];
    m = recipe.beta1 * m + (1 - recipe.beta1) * gradient[i];
    v = recipe.beta2 * v + (1 - recipe.beta2) * gradient[i] * gradient[i];
    const double corrected_m = m / (1 - std::pow(recipe.beta1, t));
    const double corrected_v = v / (1 - std::pow(recipe.beta2, t));
    p -= rate * (corrected_m / (std::sqrt(corrected_v) + recipe.eps) +
                 (decay ? recipe.weight_decay * p : 0));
  }
}

double learning_rate(int64_t s, double peak, int64_t warmup, int64_t steps, double final_ratio) {
  if (s < warmup) return peak * static_cast<double>(s + 1) / static_cast<double>(warmup);
  if (s >= steps) return peak * final_ratio;
  const double progress = static_cast<double>(s - warmup) / static_cast<double>(steps - warmup);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return peak * (final_ratio + (1 - final_ratio) * cosine);
}

double clip_factor(double norm, double limit) { return norm > limit ? limit / norm : 1; }

}  // namespace dcformer::reference
