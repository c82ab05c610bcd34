#include "dcformer/ops/swiglu.h"

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/lanes.h"
#include "dcformer/ops/swiglu_kernels.h"

namespace dcformer {
namespace {

int64_t n_slice(MatrixView<const float> a, MatrixView<const float> gate) {
  if (gate.data == nullptr) return 1;
  require(gate.rows == a.rows && gate.cols > 0 && a.cols % gate.cols == 0,
          "swiglu: expected a gate [{},S] with S dividing {}, got [{},{}]", a.rows, a.cols,
          gate.rows, gate.cols);
  return gate.cols;
}

void check_same(MatrixView<const float> a, int64_t rows, int64_t cols) {
  require(rows == a.rows && cols == a.cols, "swiglu: expected [{},{}], got [{},{}]", a.rows, a.cols,
          rows, cols);
}

}  // namespace

void swiglu(Context& context, MatrixView<const float> a, MatrixView<const float> b,
            MatrixView<const float> gate, Matrix y) {
  check_same(a, b.rows, b.cols);
  check_same(a, y.rows, y.cols);
  const int64_t slices = n_slice(a, gate);
  const int64_t width = a.cols / slices;
  visit_dtype(y.dtype, "swiglu", [&](auto type) {
    using T = decltype(type);
    const auto out = y.typed<T>();
    parallel_chunks(context, a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t s = 0; s < slices; ++s)
          swiglu_slice<T>(a.row(r) + s * width, b.row(r) + s * width,
                          gate.data == nullptr ? 1.0f : gate.row(r)[s], out.row(r) + s * width,
                          width);
    });
  });
}

void swiglu_backward(Context& context, MatrixView<const float> a, MatrixView<const float> b,
                     MatrixView<const float> gate, MatrixView<const float> dy, Matrix da, Matrix db,
                     MatrixView<float> dgate) {
  check_same(a, b.rows, b.cols);
  check_same(a, dy.rows, dy.cols);
  check_same(a, da.rows, da.cols);
  check_same(a, db.rows, db.cols);
  const int64_t slices = n_slice(a, gate);
  const int64_t width = a.cols / slices;
  visit_dtype(da.dtype, "swiglu_backward", [&](auto type) {
    using T = decltype(type);
    const auto da_out = da.typed<T>();
    const auto db_out = db.typed<T>();
    parallel_chunks(context, a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t s = 0; s < slices; ++s) {
          const float g = gate.data == nullptr ? 1.0f : gate.row(r)[s];
          const float dg = swiglu_backward_slice<T>(
              a.row(r) + s * width, b.row(r) + s * width, g, dy.row(r) + s * width,
              da_out.row(r) + s * width, db_out.row(r) + s * width, width);
          if (gate.data != nullptr) dgate.row(r)[s] = dg;
        }
    });
  });
}

}  // namespace dcformer
