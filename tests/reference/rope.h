#pragma once

#include <cstdint>
#include <vector>

namespace dcformer::reference {

/// What a rotation depends on. x is [N,H,D]; the first `rotary_dim` coordinates of a head turn.
struct Rope {
  int64_t n_head = 1;
  int64_t head_dim = 2;
  int64_t rotary_dim = 2;
  double base = 10000;
};

/// Rotates the pairs (d, d + D_rot/2) of each head by the angle position / base^(2d/D_rot).
std::vector<double> rope(const std::vector<double>& x, const std::vector<int64_t>& positions,
                         const Rope& sizes);

/// The gradient of x for that of y: the rotation the other way round.
std::vector<double> rope_backward(const std::vector<double>& dy,
                                  const std::vector<int64_t>& positions, const Rope& sizes);

}  // namespace dcformer::reference
