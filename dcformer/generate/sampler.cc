#include "dcformer/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "dcformer/base/check.h"

namespace dcformer {

Sampler::Sampler(const SamplingOptions& options)
    : options_(options), random_(options.seed, "sampler") {
  require(options.temperature >= 0 && std::isfinite(options.temperature),
          "temperature is {}, expected 0 (greedy) or more", options.temperature);
  require(options.top_k >= 0, "top_k is {}, expected 0 (all tokens) or more", options.top_k);
  require(options.n_id >= 0, "n_id is {}, expected 0 (all ids) or more", options.n_id);
  require(options.top_p > 0 && options.top_p <= 1, "top_p is {}, expected above 0 and at most 1",
          options.top_p);
}

int32_t Sampler::sample(std::span<const float> logits) {
  if (options_.n_id > 0)
    logits = logits.first(std::min(logits.size(), static_cast<size_t>(options_.n_id)));
  // Nothing can be drawn from them, and no order holds among them.
  const bool numbers = std::none_of(logits.begin(), logits.end(), [](float x) { return x != x; });
  const auto best = std::max_element(logits.begin(), logits.end());
  require(numbers && std::isfinite(*best), "the model's logits are not finite (largest: {})",
          numbers ? *best : NAN);
  if (options_.temperature == 0 || options_.top_k == 1)
    return static_cast<int32_t>(best - logits.begin());
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  size_t n = order_.size();
  if (options_.top_k > 0) n = std::min(n, static_cast<size_t>(options_.top_k));
  weights_.resize(n);
  double total = 0;
  for (size_t i = 0; i < n; ++i) {
    const double distance =
        static_cast<double>(logits[static_cast<size_t>(order_[i])]) - static_cast<double>(*best);
    total += weights_[i] = std::exp(distance / options_.temperature);
  }
  double kept = 0;
  size_t last = 0;
  while (last < n && (last == 0 || kept < options_.top_p * total)) kept += weights_[last++];
  double target = random_.uniform(drawn_++) * kept;
  for (size_t i = 0; i < last; ++i) {
    target -= weights_[i];
    if (target < 0) return order_[i];
  }
  return order_[last - 1];
}

}  // namespace dcformer
