#include "dcformer/ops/embedding.h"

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/convert.h"
#include "dcformer/ops/lanes.h"

namespace dcformer {
namespace {

void check_ids(std::span<const int32_t> ids, int64_t vocabulary) {
  for (size_t n = 0; n < ids.size(); ++n)
    require(ids[n] >= 0 && ids[n] < vocabulary,
            "embedding: id {} at position {} is outside the vocabulary of {}", ids[n], n,
            vocabulary);
}

}  // namespace

void embedding(Context& context, std::span<const int32_t> ids, ConstMatrix table,
               MatrixView<float> y) {
  check_ids(ids, table.rows);
  require(y.rows == static_cast<int64_t>(ids.size()) && y.cols == table.cols,
          "embedding: expected a result [{},{}], got [{},{}]", ids.size(), table.cols, y.rows,
          y.cols);
  parallel_chunks(context, y.rows, row_grain(y.cols), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      convert(context, table.row_range(ids[n], 1), Matrix(y).row_range(n, 1));
  });
}

void embedding_backward(Context& context, std::span<const int32_t> ids, MatrixView<const float> dy,
                        MatrixView<float> dtable) {
  check_ids(ids, dtable.rows);
  // Each piece owns columns: two tokens with one id never meet on different threads.
  parallel_chunks(context, dy.cols, 64, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < dy.rows; ++n)
      for (int64_t e = begin; e < end; ++e) dtable.row(ids[n])[e] += dy.row(n)[e];
  });
}

}  // namespace dcformer
