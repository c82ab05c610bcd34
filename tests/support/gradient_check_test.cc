#include "tests/support/gradient_check.h"

#include <cmath>
#include <limits>

namespace dcformer::test {
namespace {

double sample_function(const std::vector<double>& x) {
  return std::sin(x[0]) * std::exp(x[1]) + x[2] * x[2] * x[2];
}

std::vector<double> sample_gradient(const std::vector<double>& x) {
  return {std::cos(x[0]) * std::exp(x[1]), std::sin(x[0]) * std::exp(x[1]), 3 * x[2] * x[2]};
}

const std::vector<double> kPoint{0.3, -0.7, 1.2};

TEST(GradientCheck, AcceptsTheGradient) {
  EXPECT_TRUE(gradient_matches(sample_function, kPoint, sample_gradient(kPoint)));
}

TEST(GradientCheck, RejectsAnErrorInOneElement) {
  for (size_t i = 0; i < kPoint.size(); ++i) {
    std::vector<double> gradient = sample_gradient(kPoint);
    gradient[i] += 1e-4;
    EXPECT_FALSE(gradient_matches(sample_function, kPoint, gradient)) << i;
  }
}

TEST(GradientCheck, RejectsZeroForAFunctionThatMoves) {
  EXPECT_FALSE(gradient_matches(sample_function, kPoint, {0, 0, 0}));
  EXPECT_TRUE(gradient_matches([](const std::vector<double>&) { return 3.0; }, kPoint, {0, 0, 0}));
}

TEST(GradientCheck, RejectsNotANumberAndWrongLengths) {
  std::vector<double> gradient = sample_gradient(kPoint);
  gradient[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(gradient_matches(sample_function, kPoint, gradient));
  EXPECT_FALSE(gradient_matches(sample_function, kPoint, {1, 2}));
}

}  // namespace
}  // namespace dcformer::test
