#pragma once

#include <cstdint>
#include <vector>

namespace dcformer::reference {

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

/// One parameter's values and moments.
struct AdamWState {
  std::vector<double> parameter;
  std::vector<double> first_moment;
  std::vector<double> second_moment;
};

/// Update number `update` (from 1) at the given rate; zero weight decay where `decay` is off.
///   m = β1·m + (1-β1)·g, v = β2·v + (1-β2)·g²,
///   p -= rate·(m/(1-β1^t) / (sqrt(v/(1-β2^t)) + eps) + decay·p)
void adamw(AdamWState& state, const std::vector<double>& gradient, int64_t update, double rate,
           const AdamW& recipe, bool decay);

/// The rate of update `s` (from 0): peak·(s+1)/warmup while s < warmup, then a cosine from the peak
/// to peak·final_ratio at `s = steps`, which stays there.
double learning_rate(int64_t s, double peak, int64_t warmup, int64_t steps, double final_ratio);

/// What clipping multiplies gradients of this global norm with: min(1, limit/norm).
double clip_factor(double norm, double limit);

}  // namespace dcformer::reference
