#pragma once

#include <span>

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// y[n] = table[ids[n]]: table [V,E] f32, bf16 or f16, y [N,E] f32, set. Throws Error for an id
/// outside 0 … V-1, naming it and its place.
void embedding(Context& context, std::span<const int32_t> ids, ConstMatrix table,
               MatrixView<float> y);

/// dtable[ids[n]] += dy[n], tokens in order. dy [N,E], dtable [V,E].
void embedding_backward(Context& context, std::span<const int32_t> ids, MatrixView<const float> dy,
                        MatrixView<float> dtable);

}  // namespace dcformer
