#include "dcformer/ops/swiglu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/swiglu_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void Forward(const float* a, const float* b, float gate, T* y, int64_t n) {
  const VF g = hn::Set(DF(), gate);
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    const VF x = LoadN(a + i, lanes);
    const VF value = hn::Mul(hn::Mul(x, Sigmoid(x)), LoadN(b + i, lanes));
    StoreN(hn::Mul(value, g), y + i, lanes);
  });
}
void ForwardF32(const float* a, const float* b, float gate, float* y, int64_t n) {
  Forward(a, b, gate, y, n);
}
void ForwardBf16(const float* a, const float* b, float gate, BFloat16* y, int64_t n) {
  Forward(a, b, gate, y, n);
}

// d silu(x)/dx = s·(1 + x·(1 - s)) with s = sigmoid(x).
template <typename T>
HWY_INLINE float Backward(const float* a, const float* b, float gate, const float* dy, T* da, T* db,
                          int64_t n) {
  const DF d;
  const VF g = hn::Set(d, gate);
  const VF one = hn::Set(d, 1.0f);
  VF dgate = hn::Zero(d);
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    const VF x = LoadN(a + i, lanes);
    const VF bv = LoadN(b + i, lanes);
    const VF dyv = LoadN(dy + i, lanes);
    const VF s = Sigmoid(x);
    const VF silu = hn::Mul(x, s);
    const VF scaled = hn::Mul(dyv, g);
    dgate = hn::MulAdd(hn::Mul(dyv, silu), bv, dgate);
    StoreN(hn::Mul(scaled, silu), db + i, lanes);
    const VF slope = hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
    StoreN(hn::Mul(hn::Mul(scaled, bv), slope), da + i, lanes);
  });
  return Sum(dgate);
}
float BackwardF32(const float* a, const float* b, float gate, const float* dy, float* da, float* db,
                  int64_t n) {
  return Backward(a, b, gate, dy, da, db, n);
}
float BackwardBf16(const float* a, const float* b, float gate, const float* dy, BFloat16* da,
                   BFloat16* db, int64_t n) {
  return Backward(a, b, gate, dy, da, db, n);
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
void swiglu_slice(const float* a, const float* b, float gate, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ForwardF32)(a, b, gate, y, n);
}
template <>
void swiglu_slice(const float* a, const float* b, float gate, BFloat16* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ForwardBf16)(a, b, gate, y, n);
}
template <>
float swiglu_backward_slice(const float* a, const float* b, float gate, const float* dy, float* da,
                            float* db, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(BackwardF32)(a, b, gate, dy, da, db, n);
}
template <>
float swiglu_backward_slice(const float* a, const float* b, float gate, const float* dy,
                            BFloat16* da, BFloat16* db, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(BackwardBf16)(a, b, gate, dy, da, db, n);
}

}  // namespace dcformer
#endif
