#pragma once

#include <cstdint>

namespace dcformer {

/// The update's factors in f32.
struct AdamWFactors {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  /// learning_rate / (1 - β1^n), 1 / (1 - β2^n), and learning_rate·weight_decay.
  float rate, second_correction, eps, decay;
};

void adamw_range(float* w, const float* g, float* m, float* v, int64_t n,
                 const AdamWFactors& factors);

/// Σ x² of n values in f32 vectors: keep n to some thousands.
float sum_of_squares_range(const float* x, int64_t n);

}  // namespace dcformer
