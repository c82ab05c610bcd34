#pragma once

#include <string>

#include "dcformer/base/context.h"
#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// "f32", "bf16" or "auto" as a compute type. "auto" times both products in turn on this machine
/// (about a quarter of a second) and takes bf16 only where it is clearly faster; the choice is
/// logged. Throws Error for another text.
DType choose_compute_dtype(Context& context, const std::string& text);

}  // namespace dcformer
