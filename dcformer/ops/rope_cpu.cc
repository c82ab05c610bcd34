#include "dcformer/ops/rope_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/rope_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void Rotate(const float* x, const float* cosine, const float* sine, float sign, T* y,
                       int64_t half, int64_t n) {
  const VF s = hn::Set(DF(), sign);
  ForVectors(half, [&](int64_t i, int64_t lanes) {
    const VF a = LoadN(x + i, lanes);
    const VF b = LoadN(x + half + i, lanes);
    const VF c = LoadN(cosine + i, lanes);
    const VF w = hn::Mul(LoadN(sine + i, lanes), s);
    StoreN(hn::NegMulAdd(b, w, hn::Mul(a, c)), y + i, lanes);
    StoreN(hn::MulAdd(a, w, hn::Mul(b, c)), y + half + i, lanes);
  });
  ForVectors(n - 2 * half, [&](int64_t i, int64_t lanes) {
    StoreN(LoadN(x + 2 * half + i, lanes), y + 2 * half + i, lanes);
  });
}
void RotateF32(const float* x, const float* cosine, const float* sine, float sign, float* y,
               int64_t half, int64_t n) {
  Rotate(x, cosine, sine, sign, y, half, n);
}
void RotateBf16(const float* x, const float* cosine, const float* sine, float sign, BFloat16* y,
                int64_t half, int64_t n) {
  Rotate(x, cosine, sine, sign, y, half, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer {

HWY_EXPORT(RotateF32);
HWY_EXPORT(RotateBf16);

template <>
void rope_head(const float* x, const float* cosine, const float* sine, float sign, float* y,
               int64_t half, int64_t n) {
  HWY_DYNAMIC_DISPATCH(RotateF32)(x, cosine, sine, sign, y, half, n);
}
template <>
void rope_head(const float* x, const float* cosine, const float* sine, float sign, BFloat16* y,
               int64_t half, int64_t n) {
  HWY_DYNAMIC_DISPATCH(RotateBf16)(x, cosine, sine, sign, y, half, n);
}

}  // namespace dcformer
#endif
