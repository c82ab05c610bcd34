#include "dcformer/ops/convert.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/convert_kernels.h"
#include "dcformer/ops/half_kernels.h"

namespace dcformer {
namespace {

void convert_row(ConstMatrix from, Matrix to, int64_t row) {
  const ConstMatrix source = from.row_range(row, 1);
  const Matrix target = to.row_range(row, 1);
  const auto* f32 = static_cast<const float*>(source.data);
  if (from.dtype == to.dtype) {
    std::memcpy(target.data, source.data, static_cast<size_t>(from.cols) * size_of(from.dtype));
  } else if (from.dtype == DType::f32) {
    round_to_bf16(f32, static_cast<BFloat16*>(target.data), from.cols);
  } else if (from.dtype == DType::bf16) {
    widen_bf16(static_cast<const BFloat16*>(source.data), static_cast<float*>(target.data),
               from.cols);
  } else {
    const auto* half = static_cast<const Float16*>(source.data);
    if (to.dtype == DType::f32) {
      widen_f16(half, static_cast<float*>(target.data), from.cols);
      return;
    }
    std::array<float, 1024> wide;
    constexpr auto kMost = static_cast<int64_t>(wide.size());
    for (int64_t i = 0; i < from.cols; i += kMost) {
      const int64_t n = std::min(kMost, from.cols - i);
      widen_f16(half + i, wide.data(), n);
      round_to_bf16(wide.data(), static_cast<BFloat16*>(target.data) + i, n);
    }
  }
}

}  // namespace

void convert(Context& context, ConstMatrix from, Matrix to) {
  require(from.rows == to.rows && from.cols == to.cols,
          "convert: expected a result [{},{}], got [{},{}]", from.rows, from.cols, to.rows,
          to.cols);
  require(to.dtype == DType::f32 || to.dtype == DType::bf16,
          "convert: result is {}, expected f32 or bf16", name_of(to.dtype));
  require(from.dtype == DType::f32 || from.dtype == DType::bf16 || from.dtype == DType::f16,
          "convert: operand is {}, expected f32, bf16 or f16", name_of(from.dtype));
  const int64_t grain = 1 + 65536 / (from.cols + 1);
  parallel_chunks(context, from.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) convert_row(from, to, row);
  });
}

}  // namespace dcformer
