#include <algorithm>
#include <limits>

#include "dcformer/ops/composed_attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/composed_attention_softmax_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace attention {
namespace HWY_NAMESPACE {
using namespace dcformer::HWY_NAMESPACE;  // NOLINT: the helpers of the same target

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Calls f(column vector of a row's 32 entries) in order.
template <typename F>
HWY_INLINE void ForRow(const Band& x, int64_t head, int64_t row, F&& f) {
  for (int64_t half = 0; half < 2; ++half) {
    float* at = x.square(head, half) + row * kSide;
    for (int64_t c = 0; c < kSide; c += kVectorLanes) f(at + c);
  }
}

// Calls f(row, place in the vector) for the rows of a vector of rows that the band has.
template <typename F>
HWY_INLINE void ForVectorRows(const Band& x, int64_t first, F&& f) {
  const int64_t count = std::min<int64_t>(kVectorLanes, x.rows - first);
  for (int64_t i = 0; i < count; ++i) f(first + i, i);
}

void SoftmaxBand(const Band& x, int64_t head, float scale, float* maximum, float* sums,
                 float* reference) {
  const DF d;
  const VF factor = hn::Set(d, scale);
  const VF hidden = hn::Set(d, kHidden);
  for (int64_t first = 0; first < x.rows; first += kVectorLanes) {
    VF v[kVectorLanes];
    for (VF& top : v) top = hidden;
    ForVectorRows(x, first, [&](int64_t row, int64_t i) HWY_ATTR {
      ForRow(x, head, row, [&](float* at) HWY_ATTR { v[i] = hn::Max(v[i], LoadF(at)); });
    });
    const VF before = LoadF(maximum + first);
    const VF m = hn::Max(before, hn::Mul(MaxEach(v), factor));
    StoreF(m, maximum + first);
    StoreF(m, reference + first);
    const VF shift = hn::IfThenZeroElse(hn::Eq(m, hidden), m);
    HWY_ALIGN float shifts[kVectorLanes];
    hn::Store(shift, d, shifts);
    for (VF& sum : v) sum = hn::Zero(d);
    ForVectorRows(x, first, [&](int64_t row, int64_t i) HWY_ATTR {
      const VF own = hn::Set(d, shifts[i]);
      ForRow(x, head, row, [&](float* at) HWY_ATTR {
        const VF e = ExpUpToOne(hn::MulSub(LoadF(at), factor, own));
        StoreF(e, at);
        v[i] = hn::Add(v[i], e);
      });
    });
    const VF kept = hn::Mul(LoadF(sums + first), ExpUpToOne(hn::Sub(before, shift)));
    StoreF(hn::Add(kept, SumEach(v)), sums + first);
  }
}

void SoftmaxFinish(int64_t n, float* maximum, const float* sums, float* inverse_sum) {
  for (int64_t i = 0; i < n; ++i) {
    if (maximum[i] == kHidden) maximum[i] = 0;
    inverse_sum[i] = sums[i] > 0 ? 1.0f / sums[i] : 0.0f;
  }
}

void SoftmaxScales(int64_t n, const float* reference, const float* maximum,
                   const float* inverse_sum, float* scale) {
  ForVectors(n, [&](int64_t i, int64_t count) HWY_ATTR {
    const VF e = ExpUpToOne(hn::Sub(LoadN(reference + i, count), LoadN(maximum + i, count)));
    StoreN(hn::Mul(e, LoadN(inverse_sum + i, count)), scale + i, count);
  });
}

void SoftmaxBandKnown(const Band& x, int64_t head, float scale, const float* maximum,
                      const float* inverse_sum) {
  const DF d;
  const VF factor = hn::Set(d, scale);
  for (int64_t row = 0; row < x.rows; ++row) {
    const VF shift = hn::Set(d, maximum[row]);
    const VF inverse = hn::Set(d, inverse_sum[row]);
    ForRow(x, head, row, [&](float* at) HWY_ATTR {
      StoreF(hn::Mul(ExpUpToOne(hn::MulSub(LoadF(at), factor, shift)), inverse), at);
    });
  }
}

void SoftmaxBandDot(const Band& p, const Band& g, int64_t head, float* sums) {
  const DF d;
  for (int64_t first = 0; first < p.rows; first += kVectorLanes) {
    VF v[kVectorLanes];
    for (VF& sum : v) sum = hn::Zero(d);
    ForVectorRows(p, first, [&](int64_t row, int64_t i) HWY_ATTR {
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t c = row * kSide; c < (row + 1) * kSide; c += kVectorLanes)
          v[i] = hn::MulAdd(LoadF(p.square(head, half) + c), LoadF(g.square(head, half) + c), v[i]);
    });
    StoreF(hn::Add(LoadF(sums + first), SumEach(v)), sums + first);
  }
}

void SoftmaxBandBackward(const Band& p, const Band& g, int64_t head, const float* dot) {
  const DF d;
  for (int64_t half = 0; half < 2; ++half) {
    const float* values = p.square(head, half);
    float* gradient = g.square(head, half);
    for (int64_t row = 0; row < p.rows; ++row) {
      const VF delta = hn::Set(d, dot[row]);
      for (int64_t c = row * kSide; c < (row + 1) * kSide; c += kVectorLanes)
        StoreF(hn::Mul(LoadF(values + c), hn::Sub(LoadF(gradient + c), delta)), gradient + c);
    }
  }
}

void RoundValues(float* x, int64_t n) {
  for (int64_t j = 0; j < n; j += kVectorLanes) StoreF(RoundToBFloat16(LoadF(x + j)), x + j);
}

void ReduceLanes(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    VF sum = LoadF(x + i * kSide);
    for (int64_t l = kVectorLanes; l < kSide; l += kVectorLanes)
      sum = hn::Add(sum, LoadF(x + i * kSide + l));
    out[i] = Sum(sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer::attention {

HWY_EXPORT(SoftmaxBand);
HWY_EXPORT(SoftmaxFinish);
HWY_EXPORT(SoftmaxScales);
HWY_EXPORT(SoftmaxBandKnown);
HWY_EXPORT(SoftmaxBandDot);
HWY_EXPORT(SoftmaxBandBackward);
HWY_EXPORT(RoundValues);
HWY_EXPORT(ReduceLanes);

void softmax_band(const Band& x, int64_t head, float scale, float* maximum, float* sums,
                  float* reference) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBand)(x, head, scale, maximum, sums, reference);
}
void softmax_finish(int64_t n, float* maximum, const float* sums, float* inverse_sum) {
  HWY_DYNAMIC_DISPATCH(SoftmaxFinish)(n, maximum, sums, inverse_sum);
}
void softmax_scales(int64_t n, const float* reference, const float* maximum,
                    const float* inverse_sum, float* scale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxScales)(n, reference, maximum, inverse_sum, scale);
}
void softmax_band_known(const Band& x, int64_t head, float scale, const float* maximum,
                        const float* inverse_sum) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBandKnown)(x, head, scale, maximum, inverse_sum);
}
void softmax_band_dot(const Band& p, const Band& d, int64_t head, float* sums) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBandDot)(p, d, head, sums);
}
void softmax_band_backward(const Band& p, const Band& d, int64_t head, const float* dot) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBandBackward)(p, d, head, dot);
}
void round_values(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(RoundValues)(x, n); }
void reduce_lanes(const float* x, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ReduceLanes)(x, n, out);
}

}  // namespace dcformer::attention
#endif
