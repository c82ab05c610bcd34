#pragma once

#include <span>

#include "dcformer/base/context.h"
#include "dcformer/ops/linear.h"

namespace dcformer {

/// The sum of the losses in nats, the number of predictions that were counted, and of those whose
/// largest logit was the target's (of equal ones the first counts as the largest).
struct CrossEntropySum {
  double loss = 0;
  int64_t n_target = 0;
  int64_t n_correct = 0;
};

/// Gradients of linear_cross_entropy: of `scale` · Σ loss. dx [N,E] f32 is set; dweight, in the
/// weight's layout, f32, is added to.
struct CrossEntropyGradients {
  float scale = 1;
  Matrix dx;
  Matrix dweight;
};

/// The output layer and the softmax cross-entropy in one: Σ_n -log softmax(W·x[n])[targets[n]] over
/// the targets that are not negative (those are ignored). x is [N,E] of the weight's type. Works on
/// chunks of tokens: the logits of all N tokens never exist. `gradients` may be null; it is
/// computed in the same pass. Throws Error for a target outside the vocabulary, naming it and its
/// place.
CrossEntropySum linear_cross_entropy(Context& context, ConstMatrix x, const Weight& weight,
                                     std::span<const int32_t> targets,
                                     const CrossEntropyGradients* gradients);

}  // namespace dcformer
