#include "tests/reference/bfloat16.h"

#include <algorithm>
#include <cmath>

namespace dcformer::reference {

double to_bfloat16(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  // 8 bits below the exponent, but no finer than the smallest subnormal, 2^-133.
  const int last_bit = std::max(exponent - 8, -133);
  return std::ldexp(std::nearbyint(std::ldexp(value, -last_bit)), last_bit);
}

std::vector<double> to_bfloat16(const std::vector<double>& values) {
  std::vector<double> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 [](double value) { return to_bfloat16(value); });
  return rounded;
}

}  // namespace dcformer::reference
