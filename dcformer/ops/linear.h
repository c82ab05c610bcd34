#pragma once

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// How a weight lies in memory: rows of outputs (`[n_out, n_in]`, as most checkpoint tensors) or
/// rows of inputs (`[n_in, n_out]`, as `dw1` and `dd`).
enum class WeightLayout : uint8_t { out_in, in_out };

/// A borrowed weight of a linear layer: storage type (f32, bf16, or f16 as files hold it), layout,
/// and the optional bias.
struct Weight {
  ConstMatrix values;
  WeightLayout layout = WeightLayout::out_in;
  /// `[n_out]`, or null.
  const float* bias = nullptr;

  int64_t n_out() const { return layout == WeightLayout::out_in ? values.rows : values.cols; }
  int64_t n_in() const { return layout == WeightLayout::out_in ? values.cols : values.rows; }
};

/// At most this many rows run on kernels whose sums have one fixed order for each row, so that a
/// row's result does not depend on the rows beside it.
constexpr int64_t kFewRows = 32;

/// y[n,o] = Σ_i x[n,i]·W[o,i] + bias[o]. x is [N,n_in] of the weight's type, y [N,n_out] f32, or
/// bf16 for bf16 operands; y is set. A weight of f16 takes x of f32 or bf16: it is converted to
/// that by panels of outputs. Throws Error when shapes or types disagree.
void linear(Context& context, ConstMatrix x, const Weight& weight, Matrix y);

/// dx[n,i] = Σ_o dy[n,o]·W[o,i]: dx is set, or added to with `accumulate` (f32 then). dy has the
/// weight's type.
void linear_backward_input(Context& context, ConstMatrix dy, const Weight& weight, Matrix dx,
                           bool accumulate);

/// dW[o,i] += Σ_n dy[n,o]·x[n,i] in the layout of `weight`; dW is f32 and added to. x and dy have
/// one type.
void linear_backward_weight(Context& context, ConstMatrix x, ConstMatrix dy, WeightLayout layout,
                            Matrix dweight);

/// dbias[o] += Σ_n dy[n,o], in a fixed order. dy is f32 or bf16.
void linear_backward_bias(Context& context, ConstMatrix dy, float* dbias);

}  // namespace dcformer
