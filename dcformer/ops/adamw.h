#pragma once

#include <cstdint>
#include <span>

#include "dcformer/base/context.h"

namespace dcformer {

/// One update of AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019).
struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
  /// The update's number, from 1: moments are divided by 1 - beta^number.
  int64_t number = 1;
  /// Factor of the gradients (clipping).
  double gradient_scale = 1;
};

/// m = β1·m + (1-β1)·g, v = β2·v + (1-β2)·g², w -= lr·(m̂ / (√v̂ + eps) + decay·w). All spans have
/// one length; weights and moments are updated in place.
void adamw(Context& context, std::span<float> weights, std::span<const float> gradients,
           std::span<float> first_moment, std::span<float> second_moment, const AdamWStep& step);

/// Σ x², added up in an order fixed by the length.
double sum_of_squares(Context& context, std::span<const float> x);

}  // namespace dcformer
