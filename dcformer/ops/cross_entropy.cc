#include "dcformer/ops/cross_entropy.h"

#include <algorithm>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/cross_entropy_kernels.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {
namespace {

// Rows whose logits take some 64 MiB: long enough for the weight gradient's product, whose result
// is read and written once a chunk.
int64_t chunk_rows(int64_t vocabulary) {
  return std::clamp<int64_t>((int64_t{16} << 20) / vocabulary / 64 * 64, 64, 2048);
}

void check(ConstMatrix x, const Weight& weight, std::span<const int32_t> targets) {
  require(static_cast<int64_t>(targets.size()) == x.rows,
          "linear_cross_entropy: expected {} targets, got {}", x.rows, targets.size());
  for (size_t n = 0; n < targets.size(); ++n)
    require(targets[n] < weight.n_out(),
            "linear_cross_entropy: target {} at position {} is outside the vocabulary of {}",
            targets[n], n, weight.n_out());
}

// Whether the target's logit is the first of the largest.
bool predicts(const float* logits, int64_t n, int64_t target) {
  const float value = logits[target];
  return std::all_of(logits, logits + target, [&](float x) { return x < value; }) &&
         std::all_of(logits + target, logits + n, [&](float x) { return x <= value; });
}

struct RowResult {
  double loss = 0;
  bool correct = false;
};

template <typename T>
void chunk_losses(Context& context, MatrixView<const float> logits,
                  std::span<const int32_t> targets, float scale, MatrixView<T> dlogits,
                  RowResult* results) {
  parallel_chunks(context, logits.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* d = dlogits.data == nullptr ? nullptr : dlogits.row(r);
      const int64_t target = targets[static_cast<size_t>(r)];
      if (target < 0) {
        if (d != nullptr) std::fill_n(d, logits.cols, static_cast<T>(0.0f));
      } else {
        results[r] = {cross_entropy_row<T>(logits.row(r), logits.cols, target, scale, d),
                      predicts(logits.row(r), logits.cols, target)};
      }
    }
  });
}

}  // namespace

CrossEntropySum linear_cross_entropy(Context& context, ConstMatrix x, const Weight& weight,
                                     std::span<const int32_t> targets,
                                     const CrossEntropyGradients* gradients) {
  check(x, weight, targets);
  const int64_t vocabulary = weight.n_out();
  const int64_t step = std::min(chunk_rows(vocabulary), std::max<int64_t>(x.rows, 1));
  const Tensor logits = Tensor::empty(context, DType::f32, {step, vocabulary});
  const Tensor dlogits =
      gradients == nullptr ? Tensor() : Tensor::empty(context, x.dtype, {step, vocabulary});
  std::vector<RowResult> results(targets.size());
  for (int64_t begin = 0; begin < x.rows; begin += step) {
    const int64_t rows = std::min(step, x.rows - begin);
    const ConstMatrix chunk = x.row_range(begin, rows);
    const Matrix chunk_logits = logits.matrix().row_range(0, rows);
    linear(context, chunk, weight, chunk_logits);
    visit_dtype(x.dtype, "linear_cross_entropy", [&](auto type) {
      using T = decltype(type);
      MatrixView<T> d;
      if (gradients != nullptr) d = dlogits.matrix().row_range(0, rows).template typed<T>();
      chunk_losses<T>(context, chunk_logits.typed<float>(),
                      targets.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
                      gradients == nullptr ? 0.0f : gradients->scale, d, results.data() + begin);
    });
    if (gradients == nullptr) continue;
    const ConstMatrix d = dlogits.matrix().row_range(0, rows);
    linear_backward_input(context, d, weight, gradients->dx.row_range(begin, rows), false);
    linear_backward_weight(context, chunk, d, weight.layout, gradients->dweight);
  }
  CrossEntropySum sum;
  for (size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] < 0) continue;
    sum.loss += results[n].loss;
    sum.n_correct += results[n].correct ? 1 : 0;
    ++sum.n_target;
  }
  return sum;
}

}  // namespace dcformer
