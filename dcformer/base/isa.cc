#include "dcformer/base/isa.h"

#include <cpuid.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <utility>

#include <hwy/targets.h>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

constexpr std::array<std::pair<std::string_view, Isa>, 4> kNames = {
    {{"avx2", Isa::avx2},
     {"avx512", Isa::avx512},
     {"avx512_bf16", Isa::avx512_bf16},
     {"amx", Isa::amx}}};

Isa limit_of(std::string_view text) {
  if (text.empty()) return Isa::amx;
  for (const auto& [name, isa] : kNames)
    if (text == name) return isa;
  fail("DCFORMER_MAX_ISA is '{}', expected avx2, avx512, avx512_bf16 or amx", text);
}

Isa processor_isa() {
  require(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
          "this processor has no AVX2 and FMA instructions, which dcformer needs");
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) return Isa::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::avx512;
  // GCC 12 knows no name for AMX here: leaf 7, EDX, bits 22 (bf16) and 24 (tiles).
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kAmx = 1u << 22 | 1u << 24;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAmx) != kAmx)
    return Isa::avx512_bf16;
  return Isa::amx;
}

Isa limit_libraries() {
  const char* variable = std::getenv("DCFORMER_MAX_ISA");
  const Isa isa = std::min(processor_isa(), limit_of(variable == nullptr ? "" : variable));
  switch (isa) {
    case Isa::avx2:
      hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
      break;
    case Isa::avx512:
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_vnni);
      break;
    case Isa::avx512_bf16:
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
      break;
    case Isa::amx:
      break;
  }
  return isa;
}

}  // namespace

Isa effective_isa() {
  static const Isa isa = limit_libraries();
  return isa;
}

bool has_bf16_products() {
  if (effective_isa() < Isa::avx512_bf16) return false;
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

}  // namespace dcformer
