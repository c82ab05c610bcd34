#include "tests/reference/linear.h"

#include <cstddef>

namespace dcformer::reference {

std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& weight,
                           const std::vector<double>& bias, int n_input) {
  const size_t n_output = weight.size() / n_input, n_row = x.size() / n_input;
  std::vector<double> y(n_row * n_output);
  for (size_t n = 0; n < n_row; ++n) {
    for (size_t o = 0; o < n_output; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int i = 0; i < n_input; ++i) sum += x[n * n_input + i] * weight[o * n_input + i];
      y[n * n_output + o] = sum;
    }
  }
  return y;
}

LinearGradients linear_backward(const std::vector<double>& x, const std::vector<double>& weight,
                                const std::vector<double>& dy, int n_input) {
  const size_t n_output = weight.size() / n_input, n_row = x.size() / n_input;
  LinearGradients gradients{std::vector<double>(x.size()), std::vector<double>(weight.size()),
                            std::vector<double>(n_output)};
  for (size_t n = 0; n < n_row; ++n) {
    for (size_t o = 0; o < n_output; ++o) {
      const double d = dy[n * n_output + o];
      gradients.bias[o] += d;
      for (int i = 0; i < n_input; ++i) {
        gradients.x[n * n_input + i] += d * weight[o * n_input + i];
        gradients.weight[o * n_input + i] += d * x[n * n_input + i];
      }
    }
  }
  return gradients;
}

}  // namespace dcformer::reference
