#pragma once

#include <cstdint>

#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// The loss of one row of n logits; sets d[i] = scale·(softmax(x)[i] - [i = target]) unless d is
/// null.
template <typename T>
float cross_entropy_row(const float* x, int64_t n, int64_t target, float scale, T* d);

}  // namespace dcformer
