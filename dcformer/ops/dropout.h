#pragma once

#include <cstdint>

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// Which values are dropped: a function of (seed, step, site, token, column) alone, drawn with
/// philox, so that a pass can be repeated, cut into smaller ones, or resumed.
struct DropoutMask {
  /// The share that is dropped, from 0 to below 1.
  double rate = 0;
  uint64_t seed = 0;
  /// The update, below 2^32.
  int64_t step = 0;
  /// The place in the model.
  uint32_t site = 0;
  /// The number that the matrix's first row has among the tokens of the update, below 2^32.
  int64_t first_token = 0;
};

/// Sets the dropped values of x [N,E] f32 or bf16 to 0 and multiplies the others by 1/(1 - rate),
/// in place (Srivastava et al., "Dropout", 2014, in its inverted form). The backward pass is the
/// same call on the gradient. A rate of 0 leaves x as it is.
void dropout(Context& context, const DropoutMask& mask, Matrix x);

}  // namespace dcformer
