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

// Calls f(vector of a row's 32 entries, its place in y) in order.
template <typename F>
HWY_INLINE void ForRow(const Band& x, const Band& y, int64_t head, int64_t row, F&& f) {
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t c = row * kSide; c < (row + 1) * kSide; c += kVectorLanes)
      f(LoadF(x.square(head, half) + c), y.square(head, half) + c);
}

// Calls f(row, place in the vector) for the rows of a vector of rows that the band has.
template <typename F>
HWY_INLINE void ForVectorRows(const Band& x, int64_t first, F&& f) {
  const int64_t count = std::min<int64_t>(kVectorLanes, x.rows - first);
  for (int64_t i = 0; i < count; ++i) f(first + i, i);
}

void SoftmaxBand(const Band& x, const Band& out, int64_t head, float scale, float* maximum,
                 float* sums, float* reference) {
  const DF d;
  const VF factor = hn::Set(d, scale);
  const VF hidden = hn::Set(d, kHidden);
  for (int64_t first = 0; first < x.rows; first += kVectorLanes) {
    VF v[kVectorLanes];
    for (VF& top : v) top = hidden;
    ForVectorRows(x, first, [&](int64_t row, int64_t i) HWY_ATTR {
      ForRow(x, x, head, row, [&](VF value, float*) HWY_ATTR { v[i] = hn::Max(v[i], value); });
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
      ForRow(x, out, head, row, [&](VF value, float* to) HWY_ATTR {
        const VF e = ExpUpToOne(hn::MulSub(value, factor, own));
        StoreF(e, to);
        v[i] = hn::Add(v[i], e);
      });
    });
    const VF kept = hn::Mul(LoadF(sums + first), ExpUpToOne(hn::Sub(before, shift)));
    StoreF(hn::Add(kept, SumEach(v)), sums + first);
  }
}

void SoftmaxFinish(int64_t n, int64_t n_chunk, const float* maxima, const float* sums,
                   float* maximum, float* inverse_sum) {
  const DF d;
  const VF hidden = hn::Set(d, kHidden);
  ForVectors(n, [&](int64_t i, int64_t count) HWY_ATTR {
    VF m = hidden;
    for (int64_t c = 0; c < n_chunk; ++c) m = hn::Max(m, LoadN(maxima + c * n + i, count));
    m = hn::IfThenZeroElse(hn::Eq(m, hidden), m);
    VF sum = hn::Zero(d);
    for (int64_t c = 0; c < n_chunk; ++c)
      sum = hn::MulAdd(LoadN(sums + c * n + i, count),
                       ExpUpToOne(hn::Sub(LoadN(maxima + c * n + i, count), m)), sum);
    StoreN(m, maximum + i, count);
    const VF inverse = hn::Div(hn::Set(d, 1.0f), sum);
    StoreN(hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), inverse), inverse_sum + i, count);
  });
}

void SoftmaxScales(int64_t n, const float* reference, const float* maximum,
                   const float* inverse_sum, float* scale) {
  ForVectors(n, [&](int64_t i, int64_t count) HWY_ATTR {
    const VF e = ExpUpToOne(hn::Sub(LoadN(reference + i, count), LoadN(maximum + i, count)));
    StoreN(hn::Mul(e, LoadN(inverse_sum + i, count)), scale + i, count);
  });
}

void SoftmaxBandKnown(const Band& x, const Band& p, int64_t head, float scale, const float* maximum,
                      const float* inverse_sum) {
  const DF d;
  const VF factor = hn::Set(d, scale);
  for (int64_t row = 0; row < x.rows; ++row) {
    const VF shift = hn::Set(d, maximum[row]);
    const VF inverse = hn::Set(d, inverse_sum[row]);
    ForRow(x, p, head, row, [&](VF value, float* to) HWY_ATTR {
      StoreF(hn::Mul(ExpUpToOne(hn::MulSub(value, factor, shift)), inverse), to);
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

void SoftmaxBandBackward(const Band& p, const Band& g, int64_t head, const float* dot,
                         const Band& out) {
  const DF d;
  for (int64_t half = 0; half < 2; ++half) {
    const float* values = p.square(head, half);
    const float* gradient = g.square(head, half);
    float* to = out.square(head, half);
    for (int64_t row = 0; row < p.rows; ++row) {
      const VF delta = hn::Set(d, dot[row]);
      for (int64_t c = row * kSide; c < (row + 1) * kSide; c += kVectorLanes)
        StoreF(hn::Mul(LoadF(values + c), hn::Sub(LoadF(gradient + c), delta)), to + c);
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

void softmax_band(const Band& x, const Band& e, int64_t head, float scale, float* maximum,
                  float* sums, float* reference) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBand)(x, e, head, scale, maximum, sums, reference);
}
void softmax_finish(int64_t n, int64_t n_chunk, const float* maxima, const float* sums,
                    float* maximum, float* inverse_sum) {
  HWY_DYNAMIC_DISPATCH(SoftmaxFinish)(n, n_chunk, maxima, sums, maximum, inverse_sum);
}
void softmax_scales(int64_t n, const float* reference, const float* maximum,
                    const float* inverse_sum, float* scale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxScales)(n, reference, maximum, inverse_sum, scale);
}
void softmax_band_known(const Band& x, const Band& p, int64_t head, float scale,
                        const float* maximum, const float* inverse_sum) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBandKnown)(x, p, head, scale, maximum, inverse_sum);
}
void softmax_band_dot(const Band& p, const Band& d, int64_t head, float* sums) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBandDot)(p, d, head, sums);
}
void softmax_band_backward(const Band& p, const Band& d, int64_t head, const float* dot,
                           const Band& out) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBandBackward)(p, d, head, dot, out);
}
void round_values(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(RoundValues)(x, n); }
void reduce_lanes(const float* x, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ReduceLanes)(x, n, out);
}

}  // namespace dcformer::attention
#endif
