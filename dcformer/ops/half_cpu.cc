#include <cmath>
#include <cstring>

#include "dcformer/ops/half_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/half_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before Highway itself.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DH = hn::Rebind<hwy::float16_t, DF>;
using DU = hn::Rebind<uint16_t, DF>;

HWY_INLINE hn::Vec<DF> Widen(const uint16_t* from) {
  return hn::PromoteTo(DF(), hn::BitCast(DH(), hn::LoadU(DU(), from)));
}
HWY_INLINE void Round(const float* from, uint16_t* to) {
  hn::StoreU(hn::BitCast(DU(), hn::DemoteTo(DH(), hn::LoadU(DF(), from))), DU(), to);
}

void WidenF16(const Float16* half, float* to, int64_t n) {
  const auto* from = reinterpret_cast<const uint16_t*>(half);
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Widen(from + i), DF(), to + i);
  if (i == n) return;
  uint16_t last[hn::MaxLanes(DF())] = {};
  float widened[hn::MaxLanes(DF())];
  std::memcpy(last, from + i, static_cast<size_t>(n - i) * sizeof(uint16_t));
  hn::StoreU(Widen(last), DF(), widened);
  std::memcpy(to + i, widened, static_cast<size_t>(n - i) * sizeof(float));
}

void RoundToF16(const float* from, Float16* half, int64_t n) {
  auto* to = reinterpret_cast<uint16_t*>(half);
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) Round(from + i, to + i);
  if (i == n) return;
  float last[hn::MaxLanes(DF())] = {};
  uint16_t rounded[hn::MaxLanes(DF())];
  std::memcpy(last, from + i, static_cast<size_t>(n - i) * sizeof(float));
  Round(last, rounded);
  std::memcpy(to + i, rounded, static_cast<size_t>(n - i) * sizeof(uint16_t));
}

}  // namespace HWY_NAMESPACE
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer {

HWY_EXPORT(WidenF16);
HWY_EXPORT(RoundToF16);

void widen_f16(const Float16* from, float* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(WidenF16)(from, to, n);
}

int64_t round_to_f16(const float* from, Float16* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(RoundToF16)(from, to, n);
  int64_t n_overflow = 0;
  for (int64_t i = 0; i < n; ++i)
    n_overflow += (to[i].bits & 0x7fff) == 0x7c00 && std::isfinite(from[i]) ? 1 : 0;
  return n_overflow;
}

}  // namespace dcformer
#endif
