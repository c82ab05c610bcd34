#pragma once

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// Sets `to` to `from`, both [N,E], converting between f32 and bf16 (rounding to nearest even), and
/// from f16. Equal types are copied. Throws Error when shapes differ or a type is another one.
void convert(Context& context, ConstMatrix from, Matrix to);

}  // namespace dcformer
