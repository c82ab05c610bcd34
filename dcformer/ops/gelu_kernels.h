#pragma once

#include <cstdint>

#include "dcformer/ops/gelu.h"

namespace dcformer {

/// y[i] = GELU(x[i]) for i < n.
template <typename T>
void gelu_row(const float* x, GeluKind kind, T* y, int64_t n);

/// dx[i] = dy[i]·GELU'(x[i]) for i < n.
template <typename T>
void gelu_backward_row(const float* x, GeluKind kind, const float* dy, T* dx, int64_t n);

}  // namespace dcformer
