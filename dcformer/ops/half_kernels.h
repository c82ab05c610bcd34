#pragma once

#include <cstdint>

#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// f16 to f32, n elements: exact, subnormals and infinities included; a NaN stays one and becomes
/// quiet.
void widen_f16(const Float16* from, float* to, int64_t n);

/// f32 to f16, n elements, rounded to nearest even. Values from 65520 on become infinite. Returns
/// how many finite values did.
int64_t round_to_f16(const float* from, Float16* to, int64_t n);

}  // namespace dcformer
