#include "tests/support/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace dcformer::test {
namespace {

::testing::AssertionResult failure(std::string text) {
  return ::testing::AssertionFailure() << text;
}

// What all forms ask first. Without it an infinite expected value would make every bound infinite,
// and anything would pass.
::testing::AssertionResult comparable(std::span<const double> actual,
                                      std::span<const double> expected) {
  if (actual.size() != expected.size())
    return failure(fmt::format("{} values, expected {}", actual.size(), expected.size()));
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i]) || !std::isfinite(expected[i]))
      return failure(
          fmt::format("not finite at [{}]: got {}, expected {}", i, actual[i], expected[i]));
  }
  return ::testing::AssertionSuccess();
}

double norm(std::span<const double> values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(std::span<const double> actual, std::span<const double> expected) {
  double sum = 0;
  for (size_t i = 0; i < actual.size(); ++i)
    sum += (actual[i] - expected[i]) * (actual[i] - expected[i]);
  return std::sqrt(sum);
}

size_t index_of_largest_error(std::span<const double> actual, std::span<const double> expected) {
  size_t worst = 0;
  for (size_t i = 1; i < actual.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) > std::abs(actual[worst] - expected[worst])) worst = i;
  }
  return worst;
}

std::string describe(std::span<const double> actual, std::span<const double> expected, size_t i) {
  return fmt::format("largest error at [{}] of {}: got {:.9g}, expected {:.9g}, difference {:.3g}",
                     i, actual.size(), actual[i], expected[i], actual[i] - expected[i]);
}

}  // namespace

namespace internal {

::testing::AssertionResult all_close(std::span<const double> actual,
                                     std::span<const double> expected, double rtol, double atol) {
  if (auto result = comparable(actual, expected); !result) return result;
  size_t n_beyond = 0;
  size_t worst = 0;
  double worst_excess = -1;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    const double bound = atol + rtol * std::abs(expected[i]);
    if (error <= bound) continue;
    ++n_beyond;
    const double excess = bound > 0 ? error / bound : std::numeric_limits<double>::infinity();
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = i;
    }
  }
  if (n_beyond == 0) return ::testing::AssertionSuccess();
  return failure(fmt::format(
      "{} of {} values beyond rtol {:g}, atol {:g}; worst at [{}]: got {:.9g}, expected {:.9g}, "
      "difference {:.3g}",
      n_beyond, actual.size(), rtol, atol, worst, actual[worst], expected[worst],
      actual[worst] - expected[worst]));
}

::testing::AssertionResult norm_close(std::span<const double> actual,
                                      std::span<const double> expected, double tolerance) {
  if (auto result = comparable(actual, expected); !result) return result;
  const double error = distance(actual, expected);
  const double bound = tolerance * norm(expected);
  if (error <= bound) return ::testing::AssertionSuccess();
  return failure(fmt::format("norm of the error is {:.4g}, expected at most {:g} of {:.4g}; {}",
                             error, tolerance, norm(expected),
                             describe(actual, expected, index_of_largest_error(actual, expected))));
}

::testing::AssertionResult max_close(std::span<const double> actual,
                                     std::span<const double> expected, double tolerance) {
  if (auto result = comparable(actual, expected); !result) return result;
  if (actual.empty()) return ::testing::AssertionSuccess();
  double largest = 0;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  const size_t worst = index_of_largest_error(actual, expected);
  if (std::abs(actual[worst] - expected[worst]) <= tolerance * largest)
    return ::testing::AssertionSuccess();
  return failure(fmt::format("largest error beyond {:g} of {:.4g}; {}", tolerance, largest,
                             describe(actual, expected, worst)));
}

::testing::AssertionResult same_values(std::span<const double> actual,
                                       std::span<const double> expected) {
  return all_close(actual, expected, 0, 0);
}

}  // namespace internal

double relative_distance(std::span<const double> actual, std::span<const double> expected) {
  return distance(actual, expected) / norm(expected);
}

}  // namespace dcformer::test
