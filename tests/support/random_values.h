#pragma once

#include <cstdint>
#include <vector>

namespace dcformer::test {

/// `n` values that look uniform in [-1, 1) times `scale`: a function of the seed alone, the same
/// everywhere. Independent of the library's own random numbers.
std::vector<double> random_doubles(int64_t n, uint64_t seed, double scale = 1);

/// The same rounded to float.
std::vector<float> random_floats(int64_t n, uint64_t seed, double scale = 1);

/// `n` integers in 0 … limit-1.
std::vector<int32_t> random_integers(int64_t n, uint64_t seed, int32_t limit);

/// The values rounded to float.
std::vector<float> to_floats(const std::vector<double>& values);

/// The values rounded to float and back, so that a kernel and its oracle get the same numbers.
std::vector<double> rounded_to_float(const std::vector<double>& values);

}  // namespace dcformer::test
