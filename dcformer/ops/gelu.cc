#include "dcformer/ops/gelu.h"

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/gelu_kernels.h"
#include "dcformer/ops/lanes.h"

namespace dcformer {
namespace {

void check_same(MatrixView<const float> x, int64_t rows, int64_t cols) {
  require(rows == x.rows && cols == x.cols, "gelu: expected [{},{}], got [{},{}]", x.rows, x.cols,
          rows, cols);
}

}  // namespace

void gelu(Context& context, MatrixView<const float> x, GeluKind kind, Matrix y) {
  check_same(x, y.rows, y.cols);
  visit_dtype(y.dtype, "gelu", [&](auto type) {
    using T = decltype(type);
    const auto out = y.typed<T>();
    parallel_chunks(context, x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) gelu_row<T>(x.row(r), kind, out.row(r), x.cols);
    });
  });
}

void gelu_backward(Context& context, MatrixView<const float> x, GeluKind kind,
                   MatrixView<const float> dy, Matrix dx) {
  check_same(x, dy.rows, dy.cols);
  check_same(x, dx.rows, dx.cols);
  visit_dtype(dx.dtype, "gelu_backward", [&](auto type) {
    using T = decltype(type);
    const auto out = dx.typed<T>();
    parallel_chunks(context, x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        gelu_backward_row<T>(x.row(r), kind, dy.row(r), out.row(r), x.cols);
    });
  });
}

}  // namespace dcformer
