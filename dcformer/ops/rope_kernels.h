#pragma once

#include <cstdint>

#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// Rotates one head: pairs (d, d + half) for d < half; the values from 2·half to n are copied.
template <typename T>
void rope_head(const float* x, const float* cosine, const float* sine, float sign, T* y,
               int64_t half, int64_t n);

}  // namespace dcformer
