#pragma once

#include <cstdint>
#include <vector>

namespace dcformer::reference {

/// Σ over the rows whose target is not -1 of log Σ_v exp(logits[n,v]) - logits[n, target], and how
/// many those rows are.
struct CrossEntropy {
  double sum = 0;
  int64_t n_target = 0;
  /// Nats a target; 0 when there is none.
  double mean() const { return n_target == 0 ? 0 : sum / static_cast<double>(n_target); }
};

/// logits are [N,V] for the N targets.
CrossEntropy cross_entropy(const std::vector<double>& logits, const std::vector<int32_t>& targets);

/// The gradient of the logits for `weight`·sum: weight·(softmax - onehot), 0 where the target is
/// -1. The mean's gradient has the weight 1/n_target.
std::vector<double> cross_entropy_backward(const std::vector<double>& logits,
                                           const std::vector<int32_t>& targets, double weight);

}  // namespace dcformer::reference
