#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace dcformer::test {

/// How an analytic gradient is held against differences of the function.
struct GradientCheck {
  /// Distance of the sample points along a direction. The differences are of fourth order, so in
  /// double precision 1e-3 leaves an error near 1e-11 of a function whose scale is 1.
  double step = 1e-3;
  /// Allowed error of a directional derivative, relative to the gradient's norm.
  double tolerance = 1e-7;
  int n_direction = 6;
  uint64_t seed = 1;
};

/// Passes when, along random directions v with elements in [-1, 1), the central difference of
/// `function` at `x` agrees with gradient·v. A gradient of norm below 1e-12 is taken as zero, and
/// then the difference must vanish to the same tolerance. `function` returns one number; keep other
/// arguments of an operation in its capture, and check each argument on its own, so that a small
/// gradient does not hide behind a large one.
::testing::AssertionResult gradient_matches(
    const std::function<double(const std::vector<double>&)>& function, const std::vector<double>& x,
    const std::vector<double>& gradient, const GradientCheck& check = {});

/// Σ a·b, the usual scalar of a vector-valued function in a gradient check.
double dot(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace dcformer::test
