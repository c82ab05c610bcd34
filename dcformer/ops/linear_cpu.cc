#include "dcformer/ops/linear_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/linear_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {

// Four outputs by kRows rows of x: each weight vector is loaded once for all rows, each sum has two
// partial vectors (even and odd steps along i) that are added at the end.
template <int kRows, typename T>
HWY_INLINE void DotTile(const MatrixView<const T>& x, const MatrixView<const T>& w,
                        const float* bias, const MatrixView<float>& y, int64_t row, int64_t out) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t n = x.cols;
  VF even[kRows];
  VF odd[kRows];
  for (int r = 0; r < kRows; ++r) even[r] = odd[r] = hn::Zero(d);
  const T* weight = w.row(out);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const VF w0 = LoadF(weight + i);
    const VF w1 = LoadF(weight + i + lanes);
    for (int r = 0; r < kRows; ++r) {
      const T* in = x.row(row + r) + i;
      even[r] = hn::MulAdd(w0, LoadF(in), even[r]);
      odd[r] = hn::MulAdd(w1, LoadF(in + lanes), odd[r]);
    }
  }
  for (; i < n; i += lanes) {
    const int64_t rest = n - i < lanes ? n - i : lanes;
    const VF w0 = LoadN(weight + i, rest);
    for (int r = 0; r < kRows; ++r)
      even[r] = hn::MulAdd(w0, LoadN(x.row(row + r) + i, rest), even[r]);
  }
  const float b = bias == nullptr ? 0.0f : bias[out];
  for (int r = 0; r < kRows; ++r) y.row(row + r)[out] = Sum(hn::Add(even[r], odd[r])) + b;
}

template <typename T>
void FewRowsOutIn(MatrixView<const T> x, MatrixView<const T> w, const float* bias,
                  MatrixView<float> y, int64_t begin, int64_t end) {
  for (int64_t out = begin; out < end; ++out) {
    int64_t row = 0;
    for (; row + 8 <= x.rows; row += 8) DotTile<8>(x, w, bias, y, row, out);
    for (; row + 2 <= x.rows; row += 2) DotTile<2>(x, w, bias, y, row, out);
    for (; row < x.rows; ++row) DotTile<1>(x, w, bias, y, row, out);
  }
}

// A vector of outputs by kRows rows, inputs in ascending order.
template <int kRows, typename T>
HWY_INLINE void ColumnTile(const MatrixView<const T>& x, const MatrixView<const T>& w,
                           const float* bias, const MatrixView<float>& y, int64_t row, int64_t out,
                           int64_t lanes) {
  VF sum[kRows];
  const VF start = bias == nullptr ? hn::Zero(DF()) : LoadN(bias + out, lanes);
  for (int r = 0; r < kRows; ++r) sum[r] = start;
  for (int64_t i = 0; i < x.cols; ++i) {
    const VF weight = LoadN(w.row(i) + out, lanes);
    for (int r = 0; r < kRows; ++r)
      sum[r] = hn::MulAdd(weight, hn::Set(DF(), ToFloat(x.row(row + r)[i])), sum[r]);
  }
  for (int r = 0; r < kRows; ++r) StoreN(sum[r], y.row(row + r) + out, lanes);
}

template <typename T>
void FewRowsInOut(MatrixView<const T> x, MatrixView<const T> w, const float* bias,
                  MatrixView<float> y, int64_t begin, int64_t end) {
  ForVectors(end - begin, [&](int64_t offset, int64_t lanes) {
    const int64_t out = begin + offset;
    int64_t row = 0;
    for (; row + 8 <= x.rows; row += 8) ColumnTile<8>(x, w, bias, y, row, out, lanes);
    for (; row < x.rows; ++row) ColumnTile<1>(x, w, bias, y, row, out, lanes);
  });
}

#define DCFORMER_INSTANTIATE(T, suffix)                                               \
  void OutIn##suffix(MatrixView<const T> x, MatrixView<const T> w, const float* bias, \
                     MatrixView<float> y, int64_t begin, int64_t end) {               \
    FewRowsOutIn(x, w, bias, y, begin, end);                                          \
  }                                                                                   \
  void InOut##suffix(MatrixView<const T> x, MatrixView<const T> w, const float* bias, \
                     MatrixView<float> y, int64_t begin, int64_t end) {               \
    FewRowsInOut(x, w, bias, y, begin, end);                                          \
  }
DCFORMER_INSTANTIATE(float, F32)
DCFORMER_INSTANTIATE(BFloat16, Bf16)
#undef DCFORMER_INSTANTIATE

}  // namespace HWY_NAMESPACE
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer {

HWY_EXPORT(OutInF32);
HWY_EXPORT(OutInBf16);
HWY_EXPORT(InOutF32);
HWY_EXPORT(InOutBf16);

template <>
void few_rows_out_in(MatrixView<const float> x, MatrixView<const float> w, const float* bias,
                     MatrixView<float> y, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(OutInF32)(x, w, bias, y, begin, end);
}
template <>
void few_rows_out_in(MatrixView<const BFloat16> x, MatrixView<const BFloat16> w, const float* bias,
                     MatrixView<float> y, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(OutInBf16)(x, w, bias, y, begin, end);
}
template <>
void few_rows_in_out(MatrixView<const float> x, MatrixView<const float> w, const float* bias,
                     MatrixView<float> y, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(InOutF32)(x, w, bias, y, begin, end);
}
template <>
void few_rows_in_out(MatrixView<const BFloat16> x, MatrixView<const BFloat16> w, const float* bias,
                     MatrixView<float> y, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(InOutBf16)(x, w, bias, y, begin, end);
}

}  // namespace dcformer
#endif
