#include "dcformer/ops/adamw_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/adamw_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {

void AdamWRange(float* w, const float* g, float* m, float* v, int64_t n, const AdamWFactors& f) {
  const DF d;
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    const VF gradient = hn::Mul(LoadN(g + i, lanes), hn::Set(d, f.gradient_scale));
    const VF first = hn::MulAdd(LoadN(m + i, lanes), hn::Set(d, f.beta1),
                                hn::Mul(gradient, hn::Set(d, f.one_minus_beta1)));
    const VF second =
        hn::MulAdd(LoadN(v + i, lanes), hn::Set(d, f.beta2),
                   hn::Mul(hn::Mul(gradient, gradient), hn::Set(d, f.one_minus_beta2)));
    const VF root =
        hn::Add(hn::Sqrt(hn::Mul(second, hn::Set(d, f.second_correction))), hn::Set(d, f.eps));
    const VF weight = LoadN(w + i, lanes);
    const VF step =
        hn::MulAdd(weight, hn::Set(d, f.decay), hn::Div(hn::Mul(first, hn::Set(d, f.rate)), root));
    StoreN(first, m + i, lanes);
    StoreN(second, v + i, lanes);
    StoreN(hn::Sub(weight, step), w + i, lanes);
  });
}

float SumOfSquaresRange(const float* x, int64_t n) {
  VF sum = hn::Zero(DF());
  ForVectors(n, [&](int64_t i, int64_t lanes) {
    const VF v = LoadN(x + i, lanes);
    sum = hn::MulAdd(v, v, sum);
  });
  return Sum(sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer {

HWY_EXPORT(AdamWRange);
HWY_EXPORT(SumOfSquaresRange);

void adamw_range(float* w, const float* g, float* m, float* v, int64_t n,
                 const AdamWFactors& factors) {
  HWY_DYNAMIC_DISPATCH(AdamWRange)(w, g, m, v, n, factors);
}
float sum_of_squares_range(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresRange)(x, n);
}

}  // namespace dcformer
#endif
