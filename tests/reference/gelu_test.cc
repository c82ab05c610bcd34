#include "tests/reference/gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/gradient_check.h"

namespace dcformer::reference {
namespace {

TEST(ReferenceGelu, KnownValues) {
  // Φ(1) = 0.841344746068543, Φ(-2) = 0.0227501319481792.
  EXPECT_NEAR(gelu(1, Gelu::erf), 0.841344746068543, 1e-14);
  EXPECT_NEAR(gelu(-2, Gelu::erf), -2 * 0.0227501319481792, 1e-14);
  EXPECT_EQ(gelu(0, Gelu::tanh), 0);
  // The approximation is within 5e-4 of the function, but not equal to it.
  for (double x : {-3.0, -1.0, 0.5, 2.0}) {
    EXPECT_NEAR(gelu(x, Gelu::tanh), gelu(x, Gelu::erf), 5e-4);
    EXPECT_GT(std::abs(gelu(x, Gelu::tanh) - gelu(x, Gelu::erf)), 1e-6);
  }
}

TEST(ReferenceGelu, DerivativesMatchDifferences) {
  for (Gelu kind : {Gelu::erf, Gelu::tanh}) {
    for (double x : {-4.0, -1.5, -0.1, 0.0, 0.7, 3.0}) {
      const auto function = [&](const std::vector<double>& at) { return gelu(at[0], kind); };
      EXPECT_TRUE(test::gradient_matches(function, {x}, {gelu_derivative(x, kind)})) << x;
    }
  }
}

}  // namespace
}  // namespace dcformer::reference
