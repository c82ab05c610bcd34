#pragma once

#include <vector>

namespace dcformer::reference {

/// y[n,e] = x[n,e] / sqrt(mean_e(x[n,e]²) + eps) · scale[e]; the scale's length is that of a row.
/// With rows of one head's coordinates this is the QK norm.
std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& scale,
                             double eps);

struct RmsNormGradients {
  std::vector<double> x, scale;
};

RmsNormGradients rms_norm_backward(const std::vector<double>& x, const std::vector<double>& scale,
                                   double eps, const std::vector<double>& dy);

}  // namespace dcformer::reference
