#pragma once

#include <cstdint>

#include "dcformer/tensor/view.h"

namespace dcformer {

/// y[n,o] = Σ_i x[n,i]·w[o,i] for the outputs [begin, end): the sum over i has one order whatever
/// the number of rows. w is [n_out, n_in].
template <typename T>
void few_rows_out_in(MatrixView<const T> x, MatrixView<const T> w, const float* bias,
                     MatrixView<float> y, int64_t begin, int64_t end);

/// The same for w [n_in, n_out].
template <typename T>
void few_rows_in_out(MatrixView<const T> x, MatrixView<const T> w, const float* bias,
                     MatrixView<float> y, int64_t begin, int64_t end);

}  // namespace dcformer
