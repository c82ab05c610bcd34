#pragma once

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// y[n,e] = x[n,e] · r[n] · scale[e], r[n] = 1 / sqrt(mean_e(x[n,e]²) + eps). x is [N,E] f32, y
/// [N,E] f32 or bf16 and set; scale [E]. Zhang and Sennrich, "Root mean square layer
/// normalization", 2019.
void rms_norm(Context& context, MatrixView<const float> x, const float* scale, float eps, Matrix y);

/// Gradients of the same: dy is [N,E] f32; dx is set, or added to with `accumulate`; dscale [E] is
/// added to, summed over tokens in a fixed order.
void rms_norm_backward(Context& context, MatrixView<const float> x, const float* scale, float eps,
                       MatrixView<const float> dy, MatrixView<float> dx, bool accumulate,
                       float* dscale);

/// rms_norm of each head's `head_dim` values with one scale [D] for all heads (QK norm): x and y
/// are [N,H,D]; y is set and may be x.
void rms_norm_heads(Context& context, HeadView<const float> x, const float* scale, float eps,
                    HeadView<float> y);

/// Gradients of the same: dx is set and may be dy; dscale [D] is added to.
void rms_norm_heads_backward(Context& context, HeadView<const float> x, const float* scale,
                             float eps, HeadView<const float> dy, HeadView<float> dx,
                             float* dscale);

}  // namespace dcformer
