#include "dcformer/ops/rms_norm_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/rms_norm_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {

HWY_INLINE float InverseRms(const float* x, float eps, int64_t n) {
  VF sum = hn::Zero(DF());
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    const VF v = LoadN(x + i, lanes);
    sum = hn::MulAdd(v, v, sum);
  });
  return 1.0f / std::sqrt(Sum(sum) / static_cast<float>(n) + eps);
}

template <typename T>
HWY_INLINE void NormRow(const float* x, const float* scale, float eps, T* y, int64_t n) {
  const VF r = hn::Set(DF(), InverseRms(x, eps, n));
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    StoreN(hn::Mul(hn::Mul(LoadN(x + i, lanes), r), LoadN(scale + i, lanes)), y + i, lanes);
  });
}
void NormRowF32(const float* x, const float* scale, float eps, float* y, int64_t n) {
  NormRow(x, scale, eps, y, n);
}
void NormRowBf16(const float* x, const float* scale, float eps, BFloat16* y, int64_t n) {
  NormRow(x, scale, eps, y, n);
}

// With g = dy·scale: dx = r·g - x·r³·mean(g·x), the derivative of y = x·r(x)·scale.
void BackwardRow(const float* x, const float* scale, float eps, const float* dy, float* dx,
                 bool accumulate, float* dscale, int64_t n) {
  const DF d;
  const float r = InverseRms(x, eps, n);
  const VF rv = hn::Set(d, r);
  VF dot = hn::Zero(d);
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    const VF v = LoadN(x + i, lanes);
    const VF g = LoadN(dy + i, lanes);
    dot = hn::MulAdd(hn::Mul(g, LoadN(scale + i, lanes)), v, dot);
    StoreN(hn::MulAdd(hn::Mul(g, v), rv, LoadN(dscale + i, lanes)), dscale + i, lanes);
  });
  const VF c = hn::Set(d, Sum(dot) / static_cast<float>(n) * r * r * r);
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    const VF g = hn::Mul(LoadN(dy + i, lanes), LoadN(scale + i, lanes));
    VF value = hn::NegMulAdd(LoadN(x + i, lanes), c, hn::Mul(g, rv));
    if (accumulate) value = hn::Add(value, LoadN(dx + i, lanes));
    StoreN(value, dx + i, lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer {

HWY_EXPORT(NormRowF32);
HWY_EXPORT(NormRowBf16);
HWY_EXPORT(BackwardRow);

template <>
void rms_norm_row(const float* x, const float* scale, float eps, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(NormRowF32)(x, scale, eps, y, n);
}
template <>
void rms_norm_row(const float* x, const float* scale, float eps, BFloat16* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(NormRowBf16)(x, scale, eps, y, n);
}
void rms_norm_backward_row(const float* x, const float* scale, float eps, const float* dy,
                           float* dx, bool accumulate, float* dscale, int64_t n) {
  HWY_DYNAMIC_DISPATCH(BackwardRow)(x, scale, eps, dy, dx, accumulate, dscale, n);
}

}  // namespace dcformer
#endif
