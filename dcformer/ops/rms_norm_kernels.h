#pragma once

#include <cstdint>

#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// One row: y = x·r·scale; returns nothing else.
template <typename T>
void rms_norm_row(const float* x, const float* scale, float eps, T* y, int64_t n);

/// One row: dx (set or added to) and dscale (added to).
void rms_norm_backward_row(const float* x, const float* scale, float eps, const float* dy,
                           float* dx, bool accumulate, float* dscale, int64_t n);

}  // namespace dcformer
