#pragma once

#include <span>

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// One dense product C = op(A)·op(B), or C += op(A)·op(B) with `accumulate` (C f32 then).
/// Shapes as stored: a is [m,k], or [k,m] with transpose_a; b is [k,n], or [n,k] with transpose_b;
/// c is [m,n]. A and B are both f32 or both bf16; C is f32, or bf16 for bf16 operands. Sums are
/// f32.
struct Gemm {
  ConstMatrix a;
  bool transpose_a = false;
  ConstMatrix b;
  bool transpose_b = false;
  Matrix c;
  bool accumulate = false;
};

/// Computes the products on all threads, by oneDNN. Each is cut into tiles of C that depend on its
/// shape alone, one single-threaded call a tile, so the bits do not depend on the number of
/// threads. Where the processor has no bf16 products the operands are widened and multiplied in
/// f32. The products of one call must not write what another reads. Throws Error when shapes or
/// types disagree.
void gemm(Context& context, std::span<const Gemm> products);
inline void gemm(Context& context, const Gemm& product) { gemm(context, {&product, 1}); }

}  // namespace dcformer
