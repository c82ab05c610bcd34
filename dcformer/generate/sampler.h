#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dcformer/base/random.h"

namespace dcformer {

/// How the next token is drawn.
struct SamplingOptions {
  /// Logits are divided by it; 0: the most likely token (greedy).
  double temperature = 1;
  /// Only the k most likely tokens; 0: all.
  int64_t top_k = 0;
  /// Only the smallest set of most likely tokens whose probabilities add up to this (Holtzman et
  /// al., "The curious case of neural text degeneration", 2020); 1: all. Applied after temperature
  /// and top_k.
  double top_p = 1;
  uint64_t seed = 1;
  /// Only ids below it, as a model's vocabulary may be larger than its tokenizer's; 0: all.
  int64_t n_id = 0;
};

/// Draws tokens; the same seed and logits give the same tokens.
class Sampler {
 public:
  /// Throws Error for options out of range.
  explicit Sampler(const SamplingOptions& options);

  /// The next token for logits [V]. Of equal logits the lower id comes first.
  /// Throws Error for a NaN among them, and where the largest is not finite.
  int32_t sample(std::span<const float> logits);

 private:
  SamplingOptions options_;
  Random random_;
  uint64_t drawn_ = 0;
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace dcformer
