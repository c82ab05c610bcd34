#pragma once

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// y[n,f] = silu(a[n,f]) · b[n,f] · g[n, f / (F/S)] with silu(z) = z / (1 + e^-z): the hidden layer
/// of a gated MLP (Shazeer, "GLU variants improve transformer", 2020), its S equal slices scaled by
/// `mgate`'s entries. a, b are [N,F] f32; gate is [N,S], or has no data (no scaling; S divides F);
/// y is [N,F] f32 or bf16, set.
void swiglu(Context& context, MatrixView<const float> a, MatrixView<const float> b,
            MatrixView<const float> gate, Matrix y);

/// Gradients of the same for dy [N,F] f32: da, db [N,F] (f32 or bf16) and, with a gate, dgate [N,S]
/// are set.
void swiglu_backward(Context& context, MatrixView<const float> a, MatrixView<const float> b,
                     MatrixView<const float> gate, MatrixView<const float> dy, Matrix da, Matrix db,
                     MatrixView<float> dgate);

}  // namespace dcformer
