#include "dcformer/ops/gelu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/gelu_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {

constexpr float kInverseSqrtTwoPi = 0.39894228f;
constexpr float kSqrtTwoOverPi = 0.79788456f;
constexpr float kCubic = 0.044715f;

// Φ(x), the normal distribution's function, or what the tanh form has in its place.
HWY_INLINE VF Cumulative(VF x, GeluKind kind) {
  const DF d;
  const VF half = hn::Set(d, 0.5f);
  if (kind == GeluKind::erf) return NormalCumulative(x);
  const VF cubic = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), hn::Set(d, kCubic), x);
  return hn::MulAdd(Tanh(hn::Mul(cubic, hn::Set(d, kSqrtTwoOverPi))), half, half);
}

// d(x·c(x))/dx = c + x·c'.
HWY_INLINE VF Slope(VF x, GeluKind kind) {
  const DF d;
  const VF c = Cumulative(x, kind);
  const VF square = hn::Mul(x, x);
  if (kind == GeluKind::erf) {
    const VF density =
        hn::Mul(Exp(hn::Mul(square, hn::Set(d, -0.5f))), hn::Set(d, kInverseSqrtTwoPi));
    return hn::MulAdd(x, density, c);
  }
  const VF inner = hn::MulAdd(square, hn::Set(d, 3 * kCubic), hn::Set(d, 1.0f));
  // 2·c·(1 - c) = (1 - tanh²)/2.
  const VF bell = hn::Mul(hn::Mul(hn::Set(d, 2.0f), c), hn::Sub(hn::Set(d, 1.0f), c));
  return hn::MulAdd(hn::Mul(x, bell), hn::Mul(inner, hn::Set(d, kSqrtTwoOverPi)), c);
}

template <typename T>
HWY_INLINE void Forward(const float* x, GeluKind kind, T* y, int64_t n) {
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    const VF v = LoadN(x + i, lanes);
    StoreN(hn::Mul(v, Cumulative(v, kind)), y + i, lanes);
  });
}
template <typename T>
HWY_INLINE void Backward(const float* x, GeluKind kind, const float* dy, T* dx, int64_t n) {
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    StoreN(hn::Mul(LoadN(dy + i, lanes), Slope(LoadN(x + i, lanes), kind)), dx + i, lanes);
  });
}
void ForwardF32(const float* x, GeluKind kind, float* y, int64_t n) { Forward(x, kind, y, n); }
void ForwardBf16(const float* x, GeluKind kind, BFloat16* y, int64_t n) { Forward(x, kind, y, n); }
void BackwardF32(const float* x, GeluKind kind, const float* dy, float* dx, int64_t n) {
  Backward(x, kind, dy, dx, n);
}
void BackwardBf16(const float* x, GeluKind kind, const float* dy, BFloat16* dx, int64_t n) {
  Backward(x, kind, dy, dx, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer {

HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardBf16);
HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardBf16);

template <>
void gelu_row(const float* x, GeluKind kind, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ForwardF32)(x, kind, y, n);
}
template <>
void gelu_row(const float* x, GeluKind kind, BFloat16* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ForwardBf16)(x, kind, y, n);
}
template <>
void gelu_backward_row(const float* x, GeluKind kind, const float* dy, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(BackwardF32)(x, kind, dy, dx, n);
}
template <>
void gelu_backward_row(const float* x, GeluKind kind, const float* dy, BFloat16* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(BackwardBf16)(x, kind, dy, dx, n);
}

}  // namespace dcformer
#endif
