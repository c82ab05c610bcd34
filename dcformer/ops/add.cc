#include "dcformer/ops/add.h"

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/lanes.h"

namespace dcformer {

void add(Context& context, MatrixView<const float> a, MatrixView<const float> b,
         MatrixView<float> y) {
  require(b.rows == a.rows && b.cols == a.cols && y.rows == a.rows && y.cols == a.cols,
          "add: expected [{},{}], got [{},{}] and [{},{}]", a.rows, a.cols, b.rows, b.cols, y.rows,
          y.cols);
  parallel_chunks(context, a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* left = a.row(r);
      const float* right = b.row(r);
      float* sum = y.row(r);
      for (int64_t c = 0; c < a.cols; ++c) sum[c] = left[c] + right[c];
    }
  });
}

}  // namespace dcformer
