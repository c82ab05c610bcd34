#pragma once

#include <algorithm>
#include <cstdint>

#include "dcformer/base/parallel.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {

/// Rows of `cols` elements that make a worthwhile piece of an element-wise parallel loop.
inline int64_t row_grain(int64_t cols) { return std::max<int64_t>(1, 16384 / (cols + 1)); }

/// A sum over rows with the same bits at any number of threads: the rows are cut into at most 16
/// stretches by their number alone, body(row, lane) adds row's share to its stretch's lane
/// `[width]`, and the lanes are added to `sum [width]` in order.
template <typename F>
void sum_over_rows(Context& context, int64_t rows, int64_t width, float* sum, F&& body) {
  const int64_t grain = std::max<int64_t>(8, (rows + 15) / 16);
  const int64_t n_lane = (rows + grain - 1) / grain;
  const Tensor lanes = Tensor::zeros(context, DType::f32, {std::max<int64_t>(n_lane, 1), width});
  float* data = lanes.data<float>();
  parallel_for(context, n_lane, [&](int64_t lane) {
    for (int64_t r = lane * grain; r < std::min(rows, (lane + 1) * grain); ++r)
      body(r, data + lane * width);
  });
  for (int64_t lane = 0; lane < n_lane; ++lane)
    for (int64_t i = 0; i < width; ++i) sum[i] += data[lane * width + i];
}

}  // namespace dcformer
