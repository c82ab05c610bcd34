#include "tests/reference/rope.h"

#include <cmath>
#include <complex>

namespace dcformer::reference {
namespace {

// Multiplies each pair, taken as a complex number, by exp(±i·angle).
std::vector<double> rotate(const std::vector<double>& x, const std::vector<int64_t>& positions,
                           const Rope& s, double sign) {
  std::vector<double> y = x;
  const int64_t half = s.rotary_dim / 2;
  for (size_t n = 0; n < positions.size(); ++n) {
    for (int64_t h = 0; h < s.n_head; ++h) {
      const size_t head = (n * s.n_head + h) * s.head_dim;
      for (int64_t d = 0; d < half; ++d) {
        const double angle =
            static_cast<double>(positions[n]) /
            std::pow(s.base, 2 * static_cast<double>(d) / static_cast<double>(s.rotary_dim));
        const std::complex<double> turned =
            std::complex<double>(x[head + d], x[head + d + half]) * std::polar(1.0, sign * angle);
        y[head + d] = turned.real();
        y[head + d + half] = turned.imag();
      }
    }
  }
  return y;
}

}  // namespace

std::vector<double> rope(const std::vector<double>& x, const std::vector<int64_t>& positions,
                         const Rope& sizes) {
  return rotate(x, positions, sizes, 1);
}

std::vector<double> rope_backward(const std::vector<double>& dy,
                                  const std::vector<int64_t>& positions, const Rope& sizes) {
  return rotate(dy, positions, sizes, -1);
}

}  // namespace dcformer::reference
