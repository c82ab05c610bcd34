#include "dcformer/ops/rms_norm.h"

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/lanes.h"
#include "dcformer/ops/rms_norm_kernels.h"

namespace dcformer {

void rms_norm(Context& context, MatrixView<const float> x, const float* scale, float eps,
              Matrix y) {
  require(y.rows == x.rows && y.cols == x.cols, "rms_norm: expected a result [{},{}], got [{},{}]",
          x.rows, x.cols, y.rows, y.cols);
  visit_dtype(y.dtype, "rms_norm", [&](auto type) {
    using T = decltype(type);
    const auto out = y.typed<T>();
    parallel_chunks(context, x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        rms_norm_row<T>(x.row(r), scale, eps, out.row(r), x.cols);
    });
  });
}

void rms_norm_backward(Context& context, MatrixView<const float> x, const float* scale, float eps,
                       MatrixView<const float> dy, MatrixView<float> dx, bool accumulate,
                       float* dscale) {
  require(dy.rows == x.rows && dy.cols == x.cols && dx.rows == x.rows && dx.cols == x.cols,
          "rms_norm_backward: expected gradients [{},{}], got [{},{}] and [{},{}]", x.rows, x.cols,
          dy.rows, dy.cols, dx.rows, dx.cols);
  sum_over_rows(context, x.rows, x.cols, dscale, [&](int64_t r, float* lane) {
    rms_norm_backward_row(x.row(r), scale, eps, dy.row(r), dx.row(r), accumulate, lane, x.cols);
  });
}

void rms_norm_heads(Context& context, HeadView<const float> x, const float* scale, float eps,
                    HeadView<float> y) {
  parallel_chunks(context, x.n_token, row_grain(x.n_head * x.head_dim),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t t = begin; t < end; ++t)
                      for (int64_t h = 0; h < x.n_head; ++h)
                        rms_norm_row<float>(x.at(t, h), scale, eps, y.at(t, h), x.head_dim);
                  });
}

void rms_norm_heads_backward(Context& context, HeadView<const float> x, const float* scale,
                             float eps, HeadView<const float> dy, HeadView<float> dx,
                             float* dscale) {
  sum_over_rows(context, x.n_token, x.head_dim, dscale, [&](int64_t t, float* lane) {
    for (int64_t h = 0; h < x.n_head; ++h)
      rms_norm_backward_row(x.at(t, h), scale, eps, dy.at(t, h), dx.at(t, h), false, lane,
                            x.head_dim);
  });
}

}  // namespace dcformer
