#pragma once

#include <cstdint>

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// The two forms in use: x·Φ(x) with the error function, or its tanh approximation (Hendrycks and
/// Gimpel, "Gaussian error linear units", 2016).
enum class GeluKind : uint8_t { erf, tanh };

/// y = GELU(x): x [N,E] f32, y [N,E] f32 or bf16, set.
void gelu(Context& context, MatrixView<const float> x, GeluKind kind, Matrix y);

/// dx = dy·GELU'(x), set: dy [N,E] f32, dx [N,E] f32 or bf16.
void gelu_backward(Context& context, MatrixView<const float> x, GeluKind kind,
                   MatrixView<const float> dy, Matrix dx);

}  // namespace dcformer
