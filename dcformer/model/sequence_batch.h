#pragma once

#include <cstdint>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/model/cache.h"

namespace dcformer {

/// Which tokens of a flat `[N,E]` array belong together: sequence s owns the rows offsets[s] …
/// offsets[s+1]-1, and its first row stands at position starts[s].
struct SequenceBatch {
  std::vector<int64_t> offsets = {0};
  std::vector<int64_t> starts;
  /// One number a token: a token sees only tokens of its own number. Empty: no segments.
  std::vector<int32_t> segments;
  /// One cache a sequence, holding the tokens before starts[s]; empty: none (all starts are 0).
  std::vector<SequenceCache*> caches;

  int64_t n_sequence() const { return static_cast<int64_t>(starts.size()); }
  int64_t n_token() const { return offsets.back(); }
  int64_t length(int64_t s) const {
    return offsets[static_cast<size_t>(s) + 1] - offsets[static_cast<size_t>(s)];
  }
  bool cached() const { return !caches.empty(); }

  /// Adds a sequence of `n` tokens at position `start`.
  void append(int64_t n, int64_t start = 0) {
    offsets.push_back(offsets.back() + n);
    starts.push_back(start);
  }
  /// Adds `n` new tokens of a cached sequence.
  void append(int64_t n, SequenceCache& cache) {
    append(n, cache.length());
    caches.push_back(&cache);
  }

  /// The position of every token.
  std::vector<int64_t> positions() const {
    std::vector<int64_t> result;
    result.reserve(static_cast<size_t>(n_token()));
    for (int64_t s = 0; s < n_sequence(); ++s)
      for (int64_t i = 0; i < length(s); ++i) result.push_back(starts[static_cast<size_t>(s)] + i);
    return result;
  }
};

}  // namespace dcformer
