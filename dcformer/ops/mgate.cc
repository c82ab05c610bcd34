#include "dcformer/ops/mgate.h"

#include <algorithm>
#include <cmath>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/lanes.h"

namespace dcformer {

// Rows are some tens of entries long, so plain loops serve.
void mgate(Context& context, MatrixView<const float> x, MatrixView<float> p) {
  require(p.rows == x.rows && p.cols == x.cols, "mgate: expected a result [{},{}], got [{},{}]",
          x.rows, x.cols, p.rows, p.cols);
  parallel_chunks(context, x.rows, row_grain(x.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float maximum = *std::max_element(x.row(r), x.row(r) + x.cols);
      float sum = 0;
      for (int64_t s = 0; s < x.cols; ++s) sum += p.row(r)[s] = std::exp(x.row(r)[s] - maximum);
      for (int64_t s = 0; s < x.cols; ++s) p.row(r)[s] /= sum;
    }
  });
}

void mgate_backward(Context& context, MatrixView<const float> p, MatrixView<const float> dp,
                    Matrix dx) {
  require(dp.rows == p.rows && dp.cols == p.cols && dx.rows == p.rows && dx.cols == p.cols,
          "mgate_backward: expected gradients [{},{}], got [{},{}] and [{},{}]", p.rows, p.cols,
          dp.rows, dp.cols, dx.rows, dx.cols);
  visit_dtype(dx.dtype, "mgate_backward", [&](auto type) {
    using T = decltype(type);
    const auto out = dx.typed<T>();
    parallel_chunks(context, p.rows, row_grain(p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float dot = 0;
        for (int64_t s = 0; s < p.cols; ++s) dot += p.row(r)[s] * dp.row(r)[s];
        for (int64_t s = 0; s < p.cols; ++s)
          out.row(r)[s] = static_cast<T>(p.row(r)[s] * (dp.row(r)[s] - dot));
      }
    });
  });
}

}  // namespace dcformer
