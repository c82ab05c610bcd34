#pragma once

#include <gtest/gtest.h>

#include <iterator>
#include <span>
#include <vector>

namespace dcformer::test {

/// The elements of any range of numbers (float, double, BFloat16, integers) as doubles.
template <typename Range>
std::vector<double> to_doubles(const Range& range) {
  std::vector<double> values;
  values.reserve(std::size(range));
  for (const auto& value : range) {
    if constexpr (requires { static_cast<double>(value); }) {
      values.push_back(static_cast<double>(value));
    } else {
      values.push_back(static_cast<float>(value));
    }
  }
  return values;
}

namespace internal {
::testing::AssertionResult all_close(std::span<const double> actual,
                                     std::span<const double> expected, double rtol, double atol);
::testing::AssertionResult norm_close(std::span<const double> actual,
                                      std::span<const double> expected, double tolerance);
::testing::AssertionResult max_close(std::span<const double> actual,
                                     std::span<const double> expected, double tolerance);
::testing::AssertionResult same_values(std::span<const double> actual,
                                       std::span<const double> expected);
}  // namespace internal

// All forms compare ranges of any number types in double precision, and fail when the lengths
// differ or when any value of either side is not finite. Use with EXPECT_TRUE.

/// Element by element: |a - e| <= atol + rtol·|e|. The message gives the index of the worst element
/// in terms of that bound, its values, and how many are beyond it.
template <typename Actual, typename Expected>
::testing::AssertionResult all_close(const Actual& actual, const Expected& expected, double rtol,
                                     double atol) {
  return internal::all_close(to_doubles(actual), to_doubles(expected), rtol, atol);
}

/// Norm-wise: ‖a - e‖ <= tolerance·‖e‖ (Euclidean norms), for values whose small elements are
/// differences of large ones.
template <typename Actual, typename Expected>
::testing::AssertionResult norm_close(const Actual& actual, const Expected& expected,
                                      double tolerance) {
  return internal::norm_close(to_doubles(actual), to_doubles(expected), tolerance);
}

/// Relative to the largest: max|a - e| <= tolerance·max|e|, for logits.
template <typename Actual, typename Expected>
::testing::AssertionResult max_close(const Actual& actual, const Expected& expected,
                                     double tolerance) {
  return internal::max_close(to_doubles(actual), to_doubles(expected), tolerance);
}

/// Equal values at every index (0 and -0 are equal).
template <typename Actual, typename Expected>
::testing::AssertionResult same_values(const Actual& actual, const Expected& expected) {
  return internal::same_values(to_doubles(actual), to_doubles(expected));
}

/// ‖a - e‖ / ‖e‖, for comparing two errors with each other. Infinity when ‖e‖ is 0; NaN stays NaN.
double relative_distance(std::span<const double> actual, std::span<const double> expected);

}  // namespace dcformer::test
