#pragma once

#include <algorithm>
#include <cmath>

#include "dcformer/tensor/tensor.h"

namespace dcformer {

/// Whether an f32 tensor holds neither NaN nor an infinity.
inline bool all_finite(const Tensor& t) {
  const auto values = t.span<float>();
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

}  // namespace dcformer
