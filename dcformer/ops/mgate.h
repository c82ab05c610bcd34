#pragma once

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// The MLP's slice gate: p[n,s] = softmax over s of x[n,s]. x [N,S] f32; p is set and may be x.
void mgate(Context& context, MatrixView<const float> x, MatrixView<float> p);

/// dx[n,s] = p·(dp - Σ_s p·dp), set; dx is f32 or bf16.
void mgate_backward(Context& context, MatrixView<const float> p, MatrixView<const float> dp,
                    Matrix dx);

}  // namespace dcformer
