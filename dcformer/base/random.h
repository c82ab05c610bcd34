#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace dcformer {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four
/// random words as a function of a counter and a key, with no state. So every value has its place,
/// and does not depend on who computes it or when.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// A stream of random numbers that is a function of (seed, stream, index).
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  /// The stream that belongs to a name (a parameter's, say): its FNV-1a hash.
  Random(uint64_t seed, std::string_view name);

  /// 64 random bits at `index`.
  uint64_t bits(uint64_t index) const;
  /// Uniform in [0, 1), 53 bits.
  double uniform(uint64_t index) const;
  /// Uniform in 0 … n-1 (n > 0), without bias beyond 2^-64·n.
  uint64_t below(uint64_t index, uint64_t n) const;
  /// Sets values[i] to a normal number of the given standard deviation (Box-Muller in double
  /// precision on the words at index first + i).
  void fill_normal(std::span<float> values, double deviation, uint64_t first = 0) const;

 private:
  std::array<uint32_t, 4> words(uint64_t index) const;
  uint64_t seed_;
  uint64_t stream_;
};

}  // namespace dcformer
