#pragma once

#include "dcformer/ops/convert.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {

/// The f32 tensor x as an operand of products in `type`: x itself, or a rounded copy.
inline Tensor as_operand(Context& context, const Tensor& x, DType type) {
  if (type == x.dtype()) return x;
  const Tensor rounded = Tensor::empty(context, type, x.shape());
  convert(context, x.matrix(), rounded.matrix());
  return rounded;
}

}  // namespace dcformer
