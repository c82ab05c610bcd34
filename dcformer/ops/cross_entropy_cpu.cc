#include "dcformer/ops/cross_entropy_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/cross_entropy_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE float Row(const float* x, int64_t n, int64_t target, float scale, T* d_out) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = n - n % lanes;
  VF top = hn::Set(d, x[target]);
  for (int64_t i = 0; i < whole; i += lanes) top = hn::Max(top, LoadF(x + i));
  float maximum = hn::GetLane(hn::MaxOfLanes(d, top));
  for (int64_t i = whole; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  const VF shift = hn::Set(d, maximum);
  VF sum = hn::Zero(d);
  for (int64_t i = 0; i < whole; i += lanes) sum = hn::Add(sum, Exp(hn::Sub(LoadF(x + i), shift)));
  float total = Sum(sum);
  for (int64_t i = whole; i < n; ++i) total += std::exp(x[i] - maximum);
  if (d_out != nullptr) {
    const float factor = scale / total;
    const VF f = hn::Set(d, factor);
    for (int64_t i = 0; i < whole; i += lanes)
      StoreF(hn::Mul(Exp(hn::Sub(LoadF(x + i), shift)), f), d_out + i);
    for (int64_t i = whole; i < n; ++i) FromFloat(std::exp(x[i] - maximum) * factor, d_out + i);
    FromFloat(std::exp(x[target] - maximum) * factor - scale, d_out + target);
  }
  return std::log(total) + maximum - x[target];
}
float RowF32(const float* x, int64_t n, int64_t target, float scale, float* d) {
  return Row(x, n, target, scale, d);
}
float RowBf16(const float* x, int64_t n, int64_t target, float scale, BFloat16* d) {
  return Row(x, n, target, scale, d);
}

}  // namespace HWY_NAMESPACE
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer {

HWY_EXPORT(RowF32);
HWY_EXPORT(RowBf16);

template <>
float cross_entropy_row(const float* x, int64_t n, int64_t target, float scale, float* d) {
  return HWY_DYNAMIC_DISPATCH(RowF32)(x, n, target, scale, d);
}
template <>
float cross_entropy_row(const float* x, int64_t n, int64_t target, float scale, BFloat16* d) {
  return HWY_DYNAMIC_DISPATCH(RowBf16)(x, n, target, scale, d);
}

}  // namespace dcformer
#endif
