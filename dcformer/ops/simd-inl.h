// Helpers of the Highway kernels, compiled once a target: include after hwy/foreach_target.h.
#if defined(DCFORMER_OPS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DCFORMER_OPS_SIMD_INL_H_
#undef DCFORMER_OPS_SIMD_INL_H_
#else
#define DCFORMER_OPS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

#include "dcformer/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// f32 bits rounded to the nearest bf16, in the upper half of each word; the lower half is 0. NaN
// becomes quiet. (Highway's own conversion truncates.)
HWY_INLINE VF RoundToBFloat16(VF v) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const auto word = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(word, hn::Set(du, 0x7fff)), odd);
  const auto quiet = hn::Or(word, hn::Set(du, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  return hn::BitCast(d, hn::And(chosen, hn::Set(du, 0xffff0000u)));
}

// Loads and stores of f32 vectors from and to f32 or bf16 memory.
HWY_INLINE VF LoadF(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF LoadF(const BFloat16* p) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> dh;
  const auto half = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, half)));
}
HWY_INLINE void StoreF(VF v, float* p) { hn::StoreU(v, DF(), p); }
HWY_INLINE void StoreF(VF v, BFloat16* p) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int16_t, DF> dh;
  // An arithmetic shift keeps the half's bits within the range that the saturating narrowing
  // passes.
  const auto high = hn::ShiftRight<16>(hn::BitCast(di, RoundToBFloat16(v)));
  hn::StoreU(hn::DemoteTo(dh, high), dh, reinterpret_cast<int16_t*>(p));
}

HWY_INLINE float ToFloat(float v) { return v; }
HWY_INLINE float ToFloat(BFloat16 v) { return static_cast<float>(v); }
HWY_INLINE void FromFloat(float v, float* p) { *p = v; }
HWY_INLINE void FromFloat(float v, BFloat16* p) { *p = BFloat16(v); }

// Loads n < Lanes elements, 0 in the other lanes; and the store of n lanes.
template <typename T>
HWY_INLINE VF LoadPart(const T* p, int64_t n) {
  HWY_ALIGN float buffer[HWY_MAX_BYTES / 4] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = ToFloat(p[i]);
  return hn::Load(DF(), buffer);
}
template <typename T>
HWY_INLINE void StorePart(VF v, T* p, int64_t n) {
  HWY_ALIGN float buffer[HWY_MAX_BYTES / 4];
  hn::Store(v, DF(), buffer);
  for (int64_t i = 0; i < n; ++i) FromFloat(buffer[i], p + i);
}

// Calls f(i, lanes) for vectors of [0, n): f loads and stores through the two functions below, so
// that a kernel is written once for whole vectors and for the rest.
template <typename F>
HWY_INLINE void ForVectors(int64_t n, F&& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(i, lanes);
  if (i < n) f(i, n - i);
}
template <typename T>
HWY_INLINE VF LoadN(const T* p, int64_t n) {
  return n == static_cast<int64_t>(hn::Lanes(DF())) ? LoadF(p) : LoadPart(p, n);
}
template <typename T>
HWY_INLINE void StoreN(VF v, T* p, int64_t n) {
  if (n == static_cast<int64_t>(hn::Lanes(DF()))) {
    StoreF(v, p);
  } else {
    StorePart(v, p, n);
  }
}

HWY_INLINE float Sum(VF v) { return hn::GetLane(hn::SumOfLanes(DF(), v)); }

// e^x for f32 within 2 ulp: x = n·ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, the exponent
// by its bits. Below -87.3 the result is 0; above 88.7 infinity; NaN stays.
HWY_INLINE VF Exp(VF x) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const VF low = hn::Set(d, -87.33654f);
  const VF high = hn::Set(d, 88.72283f);
  const VF clamped = hn::Min(hn::Max(x, low), high);
  const VF n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.442695041f)));
  VF r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  VF p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  // 2^n in two factors: n reaches 128, where one exponent field would overflow.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const VF first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const VF second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  VF result = hn::Mul(hn::Mul(p, first), second);
  result = hn::IfThenZeroElse(hn::Lt(x, low), result);
  result =
      hn::IfThenElse(hn::Gt(x, high), hn::Set(d, std::numeric_limits<float>::infinity()), result);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// e^x within 2 ulp for x <= 1, 0 below -87.3; NaN stays. Half the cost of Exp: the exponent comes
// from the bits of the rounded product, one factor is enough.
HWY_INLINE VF ExpUpToOne(VF x) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const VF low = hn::Set(d, -87.33654f);
  // 1.5·2^23: added to a number of small magnitude, the lowest bits are that number's nearest
  // integer.
  const VF magic = hn::Set(d, 12582912.0f);
  const VF clamped = hn::Max(x, low);
  const VF shifted = hn::MulAdd(clamped, hn::Set(d, 1.442695041f), magic);
  const VF n = hn::Sub(shifted, magic);
  VF r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  VF p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const VF result = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  return hn::IfThenElse(hn::Ge(x, low), result, hn::IfThenZeroElse(hn::Lt(x, low), x));
}

// Lanes(DF()) as a constant: these kernels are compiled for x86 alone.
constexpr int kVectorLanes = HWY_MAX_BYTES >= 64 && HWY_TARGET == HWY_AVX3 ? 16 : 8;

// Lane i of the result is op over all lanes of v[i], by one tree: as many vectors as lanes, in
// place.
template <typename Op>
HWY_INLINE VF ReduceEach(VF* v, Op op) {
  const DF d;
  const hn::Repartition<double, DF> dw;
  for (int i = 0; i < kVectorLanes / 2; ++i)
    v[i] = op(hn::InterleaveLower(d, v[2 * i], v[2 * i + 1]),
              hn::InterleaveUpper(d, v[2 * i], v[2 * i + 1]));
  for (int i = 0; i < kVectorLanes / 4; ++i) {
    const auto a = hn::BitCast(dw, v[2 * i]);
    const auto b = hn::BitCast(dw, v[2 * i + 1]);
    v[i] = op(hn::BitCast(d, hn::InterleaveLower(dw, a, b)),
              hn::BitCast(d, hn::InterleaveUpper(dw, a, b)));
  }
  // v[i] holds in each block of four lanes a share of the results 4i … 4i+3.
  VF even = v[0];
  VF odd = v[1];
  if constexpr (kVectorLanes == 16) {
    even = op(hn::ConcatLowerLower(d, v[2], v[0]), hn::ConcatUpperUpper(d, v[2], v[0]));
    odd = op(hn::ConcatLowerLower(d, v[3], v[1]), hn::ConcatUpperUpper(d, v[3], v[1]));
  }
  even = op(even, hn::SwapAdjacentBlocks(even));
  odd = op(odd, hn::SwapAdjacentBlocks(odd));
  return hn::OddEvenBlocks(odd, even);
}
HWY_INLINE VF SumEach(VF* v) {
  return ReduceEach(v, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}
HWY_INLINE VF MaxEach(VF* v) {
  return ReduceEach(v, [](VF a, VF b) HWY_ATTR { return hn::Max(a, b); });
}

// 1 / (1 + e^-x).
HWY_INLINE VF Sigmoid(VF x) {
  const DF d;
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), Exp(hn::Neg(x))));
}

// tanh: the odd polynomial x + x³·P(x²) below 0.625 (no cancellation there), else 1 - 2/(e^2x + 1).
HWY_INLINE VF Tanh(VF x) {
  const DF d;
  const VF magnitude = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  VF p = hn::Set(d, -5.70498872745e-3f);
  p = hn::MulAdd(p, z, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33332819422e-1f));
  const VF small = hn::MulAdd(hn::Mul(p, z), x, x);
  const VF one = hn::Set(d, 1.0f);
  const VF e = Exp(hn::Add(magnitude, magnitude));
  const VF large = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one))), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small, large);
}

// erfc(x) for x >= 0, relative error about 3e-7: t·e^(-x² + Q(t)) with t = 1/(1 + x/2) and a
// Chebyshev fit Q (Press et al., "Numerical recipes", section 6.2).
HWY_INLINE VF ErfcPositive(VF x) {
  const DF d;
  const VF t = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(x, hn::Set(d, 0.5f), hn::Set(d, 1.0f)));
  VF q = hn::Set(d, 0.17087277f);
  q = hn::MulAdd(q, t, hn::Set(d, -0.82215223f));
  q = hn::MulAdd(q, t, hn::Set(d, 1.48851587f));
  q = hn::MulAdd(q, t, hn::Set(d, -1.13520398f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.27886807f));
  q = hn::MulAdd(q, t, hn::Set(d, -0.18628806f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.09678418f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.37409196f));
  q = hn::MulAdd(q, t, hn::Set(d, 1.00002368f));
  q = hn::MulAdd(q, t, hn::Set(d, -1.26551223f));
  return hn::Mul(t, Exp(hn::NegMulAdd(x, x, q)));
}

// erf(x) for |x| <= 1: its Taylor series, error below 1e-8 before rounding.
HWY_INLINE VF ErfSmall(VF x) {
  const DF d;
  const VF z = hn::Mul(x, x);
  VF p = hn::Set(d, 1.480719282e-08f);
  p = hn::MulAdd(p, z, hn::Set(d, -1.636584469e-07f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.646211437e-06f));
  p = hn::MulAdd(p, z, hn::Set(d, -1.492565036e-05f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.0001205533298f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.0008548327023f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.005223977625f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.02686617065f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.1128379167f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.376126389f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.128379167f));
  return hn::Mul(p, x);
}

// Φ(x), the normal distribution's function: small relative error in its left tail too, where 1 +
// erf would cancel.
HWY_INLINE VF NormalCumulative(VF x) {
  const DF d;
  const VF half = hn::Set(d, 0.5f);
  const VF z = hn::Mul(x, hn::Set(d, 0.70710678f));
  const VF magnitude = hn::Abs(z);
  const VF tail = hn::Mul(half, ErfcPositive(magnitude));
  const VF outer = hn::IfThenElse(hn::Lt(z, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
  const VF inner = hn::MulAdd(ErfSmall(z), half, half);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.9f)), inner, outer);
}

}  // namespace HWY_NAMESPACE
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
