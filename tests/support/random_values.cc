#include "tests/support/random_values.h"

#include <cstddef>

namespace dcformer::test {
namespace {

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): enough for test data, and one line of state.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<double> random_doubles(int64_t n, uint64_t seed, double scale) {
  SplitMix source(seed);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values)
    value = scale * (static_cast<double>(source.next() >> 11) * 0x1p-52 - 1);
  return values;
}

std::vector<float> random_floats(int64_t n, uint64_t seed, double scale) {
  return to_floats(random_doubles(n, seed, scale));
}

std::vector<int32_t> random_integers(int64_t n, uint64_t seed, int32_t limit) {
  SplitMix source(seed);
  std::vector<int32_t> values(static_cast<size_t>(n));
  for (int32_t& value : values)
    value = static_cast<int32_t>(source.next() % static_cast<uint64_t>(limit));
  return values;
}

std::vector<float> to_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

std::vector<double> rounded_to_float(const std::vector<double>& values) {
  const std::vector<float> floats = to_floats(values);
  return {floats.begin(), floats.end()};
}

}  // namespace dcformer::test
