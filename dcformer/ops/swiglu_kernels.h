#pragma once

#include <cstdint>

#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// y[i] = silu(a[i])·b[i]·gate for i < n.
template <typename T>
void swiglu_slice(const float* a, const float* b, float gate, T* y, int64_t n);

/// da, db for i < n; returns Σ dy·silu(a)·b, the gate's gradient.
template <typename T>
float swiglu_backward_slice(const float* a, const float* b, float gate, const float* dy, T* da,
                            T* db, int64_t n);

}  // namespace dcformer
