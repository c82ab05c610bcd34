#pragma once

#include <vector>

namespace dcformer::reference {

/// y[n,o] = Σ_i x[n,i]·weight[o,i] + bias[o] for x [N,I] and weight [O,I]; `bias` may be empty.
/// `n_input` is I.
std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& weight,
                           const std::vector<double>& bias, int n_input);

struct LinearGradients {
  std::vector<double> x, weight, bias;
};

/// For the gradient dy [N,O].
LinearGradients linear_backward(const std::vector<double>& x, const std::vector<double>& weight,
                                const std::vector<double>& dy, int n_input);

}  // namespace dcformer::reference
