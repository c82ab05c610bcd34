#include "tests/reference/rms_norm.h"

#include <cmath>

namespace dcformer::reference {
namespace {

double root_mean_square(const double* x, size_t width, double eps) {
  double squares = 0;
  for (size_t e = 0; e < width; ++e) squares += x[e] * x[e];
  return std::sqrt(squares / static_cast<double>(width) + eps);
}

}  // namespace

std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& scale,
                             double eps) {
  const size_t width = scale.size();
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    const double rms = root_mean_square(&x[row], width, eps);
    for (size_t e = 0; e < width; ++e) y[row + e] = x[row + e] / rms * scale[e];
  }
  return y;
}

RmsNormGradients rms_norm_backward(const std::vector<double>& x, const std::vector<double>& scale,
                                   double eps, const std::vector<double>& dy) {
  const size_t width = scale.size();
  RmsNormGradients gradients{std::vector<double>(x.size()), std::vector<double>(width)};
  for (size_t row = 0; row < x.size(); row += width) {
    const double rms = root_mean_square(&x[row], width, eps);
    // With z = x/rms: dx = (dz - z·mean(dz·z)) / rms.
    double mean = 0;
    for (size_t e = 0; e < width; ++e) {
      const double z = x[row + e] / rms;
      gradients.scale[e] += dy[row + e] * z;
      mean += dy[row + e] * scale[e] * z / static_cast<double>(width);
    }
    for (size_t e = 0; e < width; ++e)
      gradients.x[row + e] = (dy[row + e] * scale[e] - x[row + e] / rms * mean) / rms;
  }
  return gradients;
}

}  // namespace dcformer::reference
