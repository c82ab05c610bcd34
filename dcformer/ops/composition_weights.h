#pragma once

#include "dcformer/base/context.h"
#include "dcformer/ops/dropout.h"
#include "dcformer/ops/gelu.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {

/// Sizes of the dynamic composition: G groups of M heads, rank R, hidden size K = 2·R·M. For each
/// token and group there are four blocks `cs`: (pre,query), (pre,key), (post,query), (post,key),
/// each of 2R+1 rows of M values: R rows w1, R rows w2, one row of gates.
struct CompositionSizes {
  int64_t n_group = 1;
  int64_t rank = 2;
  int64_t group_heads = 1;
  bool gates = true;

  int64_t hidden() const { return 2 * rank * group_heads; }
  int64_t block() const { return (2 * rank + 1) * group_heads; }
  int64_t n_block() const { return n_group * 4; }
  /// Values of all blocks of a token.
  int64_t width() const { return n_block() * block(); }
};

/// Borrowed parameters, f32 or bf16 like the hidden state: dw1 [E, G·4·K], qkw [G·4·K, 2R·M] (the
/// matrices of the blocks one below the other), dd [E, G·4·M] (no data where gates are off).
struct CompositionParameters {
  ConstMatrix dw1;
  ConstMatrix qkw;
  ConstMatrix dd;
};

/// Their gradients, f32, all added to.
struct CompositionGradients {
  Matrix dw1;
  Matrix qkw;
  Matrix dd;
};

/// What the backward pass needs: the hidden layer before GELU [N, G·4·K], and 1/rms of the w1 rows
/// [N, G·4·R].
struct CompositionSaved {
  Tensor hidden;
  Tensor inverse_rms;
};

/// Section 3.3 of the paper: u = GELU(x·dw1), w = u·qkw, w1 rows divided by their RMS (eps 1e-6),
/// gates tanh(x·dd). x is [N,E] f32 or bf16; weights [N, G·4·(2R+1)·M] f32 is set (gates 0 where
/// off). With bf16 operands u is rounded, and so are the key-side blocks, which caches hold in that
/// type. `saved` may be null. `dropout_of_u` drops values of u.
void composition_weights(Context& context, ConstMatrix x, const CompositionParameters& parameters,
                         const CompositionSizes& sizes, GeluKind kind, MatrixView<float> weights,
                         CompositionSaved* saved, const DropoutMask& dropout_of_u = {});

/// Gradients of the same. dx [N,E] f32 is added to; dweights is that of `weights`.
void composition_weights_backward(Context& context, ConstMatrix x,
                                  const CompositionParameters& parameters,
                                  const CompositionSizes& sizes, GeluKind kind,
                                  MatrixView<const float> weights, const CompositionSaved& saved,
                                  MatrixView<const float> dweights, MatrixView<float> dx,
                                  const CompositionGradients& gradients,
                                  const DropoutMask& dropout_of_u = {});

}  // namespace dcformer
