#pragma once

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// y = a + b, all [N,E] f32; y is set and may be a or b. The residual connection.
void add(Context& context, MatrixView<const float> a, MatrixView<const float> b,
         MatrixView<float> y);

}  // namespace dcformer
