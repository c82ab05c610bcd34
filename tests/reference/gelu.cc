#include "tests/reference/gelu.h"

#include <cmath>
#include <numbers>

namespace dcformer::reference {
namespace {

const double kTanhScale = std::sqrt(2 / std::numbers::pi);
constexpr double kTanhCubic = 0.044715;

}  // namespace

double gelu(double x, Gelu kind) {
  if (kind == Gelu::erf) return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  return 0.5 * x * (1 + std::tanh(kTanhScale * (x + kTanhCubic * x * x * x)));
}

double gelu_derivative(double x, Gelu kind) {
  if (kind == Gelu::erf) {
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * density;
  }
  const double t = std::tanh(kTanhScale * (x + kTanhCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kTanhScale * (1 + 3 * kTanhCubic * x * x);
}

}  // namespace dcformer::reference
