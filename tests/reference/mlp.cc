#include "tests/reference/mlp.h"

#include <algorithm>
#include <cmath>

namespace dcformer::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The gate that belongs to element `index` of the hidden layer.
size_t gate_index(size_t index, size_t width, size_t n_row, size_t n_gate) {
  const size_t n_slice = n_gate / n_row;
  return index / width * n_slice + index % width / (width / n_slice);
}

}  // namespace

std::vector<double> mgate(const std::vector<double>& x, int64_t n_slice) {
  std::vector<double> p(x.size());
  for (size_t row = 0; row < x.size(); row += n_slice) {
    const double maximum = *std::max_element(x.begin() + row, x.begin() + row + n_slice);
    double sum = 0;
    for (size_t s = row; s < row + n_slice; ++s) sum += std::exp(x[s] - maximum);
    for (size_t s = row; s < row + n_slice; ++s) p[s] = std::exp(x[s] - maximum) / sum;
  }
  return p;
}

std::vector<double> mgate_backward(const std::vector<double>& x, int64_t n_slice,
                                   const std::vector<double>& dp) {
  const std::vector<double> p = mgate(x, n_slice);
  std::vector<double> dx(x.size());
  for (size_t row = 0; row < x.size(); row += n_slice) {
    double delta = 0;
    for (size_t s = row; s < row + n_slice; ++s) delta += p[s] * dp[s];
    for (size_t s = row; s < row + n_slice; ++s) dx[s] = p[s] * (dp[s] - delta);
  }
  return dx;
}

std::vector<double> swiglu(const std::vector<double>& a, const std::vector<double>& b,
                           const std::vector<double>& gate, int64_t width) {
  std::vector<double> y(a.size());
  for (size_t x = 0; x < a.size(); ++x) {
    y[x] = a[x] * sigmoid(a[x]) * b[x];
    if (!gate.empty()) y[x] *= gate[gate_index(x, width, a.size() / width, gate.size())];
  }
  return y;
}

SwigluGradients swiglu_backward(const std::vector<double>& a, const std::vector<double>& b,
                                const std::vector<double>& gate, int64_t width,
                                const std::vector<double>& dy) {
  SwigluGradients gradients{std::vector<double>(a.size()), std::vector<double>(a.size()),
                            std::vector<double>(gate.size())};
  for (size_t x = 0; x < a.size(); ++x) {
    const double sigma = sigmoid(a[x]), silu = a[x] * sigma;
    double d = dy[x];
    if (!gate.empty()) {
      const size_t g = gate_index(x, width, a.size() / width, gate.size());
      gradients.gate[g] += dy[x] * silu * b[x];
      d *= gate[g];
    }
    gradients.a[x] = d * b[x] * sigma * (1 + a[x] * (1 - sigma));
    gradients.b[x] = d * silu;
  }
  return gradients;
}

}  // namespace dcformer::reference
