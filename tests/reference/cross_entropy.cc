#include "tests/reference/cross_entropy.h"

#include <algorithm>
#include <cmath>

namespace dcformer::reference {
namespace {

double log_sum_exp(const double* row, size_t n) {
  const double maximum = *std::max_element(row, row + n);
  double sum = 0;
  for (size_t v = 0; v < n; ++v) sum += std::exp(row[v] - maximum);
  return maximum + std::log(sum);
}

}  // namespace

CrossEntropy cross_entropy(const std::vector<double>& logits, const std::vector<int32_t>& targets) {
  CrossEntropy result;
  if (targets.empty()) return result;
  const size_t n_vocabulary = logits.size() / targets.size();
  for (size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] == -1) continue;
    const double* row = &logits[n * n_vocabulary];
    result.sum += log_sum_exp(row, n_vocabulary) - row[targets[n]];
    ++result.n_target;
  }
  return result;
}

std::vector<double> cross_entropy_backward(const std::vector<double>& logits,
                                           const std::vector<int32_t>& targets, double weight) {
  std::vector<double> dlogits(logits.size());
  if (targets.empty()) return dlogits;
  const size_t n_vocabulary = logits.size() / targets.size();
  for (size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] == -1) continue;
    const double* row = &logits[n * n_vocabulary];
    const double normaliser = log_sum_exp(row, n_vocabulary);
    for (size_t v = 0; v < n_vocabulary; ++v)
      dlogits[n * n_vocabulary + v] = weight * std::exp(row[v] - normaliser);
    dlogits[n * n_vocabulary + targets[n]] -= weight;
  }
  return dlogits;
}

}  // namespace dcformer::reference
