#include "dcformer/ops/linear.h"

#include <algorithm>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/convert.h"
#include "dcformer/ops/gemm.h"
#include "dcformer/ops/linear_kernels.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {
namespace {

void check_linear(ConstMatrix x, const Weight& w, ConstMatrix y) {
  require(x.cols == w.n_in(), "linear: expected inputs [N,{}], got [{},{}]", w.n_in(), x.rows,
          x.cols);
  require(y.rows == x.rows && y.cols == w.n_out(), "linear: expected outputs [{},{}], got [{},{}]",
          x.rows, w.n_out(), y.rows, y.cols);
  require(x.dtype == w.values.dtype || w.values.dtype == DType::f16,
          "linear: inputs are {}, weights {}, expected one type", name_of(x.dtype),
          name_of(w.values.dtype));
}

void few_rows(Context& context, ConstMatrix x, const Weight& w, MatrixView<float> y) {
  visit_dtype(x.dtype, "linear", [&](auto type) {
    using T = decltype(type);
    // Pieces of outputs: about 32 K multiplications each.
    const int64_t grain = std::max<int64_t>(64, 32768 / (w.n_in() * x.rows + 1) / 64 * 64);
    parallel_chunks(context, w.n_out(), grain, [&](int64_t begin, int64_t end) {
      if (w.layout == WeightLayout::out_in) {
        few_rows_out_in<T>(x.typed<T>(), w.values.typed<T>(), w.bias, y, begin, end);
      } else {
        few_rows_in_out<T>(x.typed<T>(), w.values.typed<T>(), w.bias, y, begin, end);
      }
    });
  });
}

void add_bias(Context& context, const float* bias, MatrixView<float> y) {
  parallel_chunks(context, y.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < y.cols; ++c) y.row(r)[c] += bias[c];
  });
}

void linear_f32(Context& context, ConstMatrix x, const Weight& w, Matrix y) {
  if (x.rows <= kFewRows) return few_rows(context, x, w, y.typed<float>());
  gemm(context, Gemm{x, false, w.values, w.layout == WeightLayout::out_in, y, false});
  if (w.bias != nullptr) add_bias(context, w.bias, y.typed<float>());
}

// Elements of a panel of f16 weights that is converted at once: it stays in the cache until it is
// multiplied.
constexpr int64_t kPanelElements = int64_t{1} << 20;

void linear_f16(Context& context, ConstMatrix x, const Weight& w, Matrix y) {
  const bool rows = w.layout == WeightLayout::out_in;
  const int64_t width =
      std::clamp<int64_t>(kPanelElements / (w.n_in() + 1) / 64 * 64, 64, w.n_out());
  for (int64_t begin = 0; begin < w.n_out(); begin += width) {
    const int64_t n = std::min(width, w.n_out() - begin);
    const ConstMatrix part = rows ? w.values.row_range(begin, n) : w.values.col_range(begin, n);
    const Tensor panel = Tensor::empty(context, x.dtype, {part.rows, part.cols});
    convert(context, part, panel.matrix());
    const float* bias = w.bias == nullptr ? nullptr : w.bias + begin;
    linear(context, x, {panel.matrix(), w.layout, bias}, y.col_range(begin, n));
  }
}

}  // namespace

void linear(Context& context, ConstMatrix x, const Weight& weight, Matrix y) {
  check_linear(x, weight, y);
  if (weight.values.dtype == DType::f16) return linear_f16(context, x, weight, y);
  if (y.dtype == DType::f32) return linear_f32(context, x, weight, y);
  const Tensor wide = Tensor::empty(context, DType::f32, {y.rows, y.cols});
  linear_f32(context, x, weight, wide.matrix());
  convert(context, wide.matrix(), y);
}

void linear_backward_input(Context& context, ConstMatrix dy, const Weight& weight, Matrix dx,
                           bool accumulate) {
  check_linear(
      dx,
      Weight{
          {nullptr, dx.dtype, weight.values.rows, weight.values.cols, 0}, weight.layout, nullptr},
      dy);
  gemm(context,
       Gemm{dy, false, weight.values, weight.layout == WeightLayout::in_out, dx, accumulate});
}

void linear_backward_weight(Context& context, ConstMatrix x, ConstMatrix dy, WeightLayout layout,
                            Matrix dweight) {
  if (layout == WeightLayout::out_in) {
    gemm(context, Gemm{dy, true, x, false, dweight, true});
  } else {
    gemm(context, Gemm{x, true, dy, false, dweight, true});
  }
}

void linear_backward_bias(Context& context, ConstMatrix dy, float* dbias) {
  visit_dtype(dy.dtype, "linear_backward_bias", [&](auto type) {
    const auto view = dy.typed<decltype(type)>();
    parallel_chunks(context, dy.cols, 64, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < view.rows; ++r)
        for (int64_t c = begin; c < end; ++c) dbias[c] += static_cast<float>(view.row(r)[c]);
    });
  });
}

}  // namespace dcformer
