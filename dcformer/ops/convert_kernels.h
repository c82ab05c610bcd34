#pragma once

#include <cstdint>

#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// to[i] = bf16(from[i]), nearest even, for i < n. NaN stays NaN.
void round_to_bf16(const float* from, BFloat16* to, int64_t n);
/// to[i] = f32(from[i]), exact.
void widen_bf16(const BFloat16* from, float* to, int64_t n);

}  // namespace dcformer
