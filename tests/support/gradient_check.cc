#include "tests/support/gradient_check.h"

#include <fmt/format.h>

#include <cmath>

#include "tests/support/random_values.h"

namespace dcformer::test {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

::testing::AssertionResult gradient_matches(
    const std::function<double(const std::vector<double>&)>& function, const std::vector<double>& x,
    const std::vector<double>& gradient, const GradientCheck& check) {
  if (gradient.size() != x.size())
    return ::testing::AssertionFailure()
           << fmt::format("gradient has {} values, expected {}", gradient.size(), x.size());
  const double norm = std::sqrt(dot(gradient, gradient));
  const double bound = check.tolerance * (norm < 1e-12 ? 1 : norm);
  for (int direction = 0; direction < check.n_direction; ++direction) {
    const std::vector<double> v =
        random_doubles(static_cast<int64_t>(x.size()), check.seed * 1000 + direction);
    const auto at = [&](double distance) {
      std::vector<double> moved = x;
      for (size_t i = 0; i < x.size(); ++i) moved[i] += distance * v[i];
      return function(moved);
    };
    const double h = check.step;
    const double numeric = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    const double analytic = dot(gradient, v);
    if (std::abs(numeric - analytic) <= bound) continue;
    return ::testing::AssertionFailure()
           << fmt::format("direction {}: differences give {:.9g}, the gradient {:.9g}; norm {:.4g}",
                          direction, numeric, analytic, norm);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace dcformer::test
