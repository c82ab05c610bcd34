#include "dcformer/ops/convert_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/convert_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {

void RoundToBf16(const float* from, BFloat16* to, int64_t n) {
  ForVectors(n, [&](int64_t i, int64_t lanes) { StoreN(LoadN(from + i, lanes), to + i, lanes); });
}

void WidenBf16(const BFloat16* from, float* to, int64_t n) {
  ForVectors(n, [&](int64_t i, int64_t lanes) { StoreN(LoadN(from + i, lanes), to + i, lanes); });
}

}  // namespace HWY_NAMESPACE
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer {

HWY_EXPORT(RoundToBf16);
HWY_EXPORT(WidenBf16);

void round_to_bf16(const float* from, BFloat16* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(RoundToBf16)(from, to, n);
}
void widen_bf16(const BFloat16* from, float* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(WidenBf16)(from, to, n);
}

}  // namespace dcformer
#endif
