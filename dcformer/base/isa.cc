#include "dcformer/base/isa.h"

#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include <hwy/targets.h>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

Isa limit_libraries() {
  require(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
          "this processor has no AVX2 and FMA instructions, which dcformer needs");
  const char* variable = std::getenv("DCFORMER_MAX_ISA");
  const std::string limit = variable == nullptr ? "" : variable;
  require(limit.empty() || limit == "avx2" || limit == "avx512",
          "DCFORMER_MAX_ISA is '{}', expected avx2 or avx512", limit);
  if (limit == "avx2") {
    hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    return Isa::avx2;
  }
  return (hwy::SupportedTargets() & HWY_AVX3) != 0 ? Isa::avx512 : Isa::avx2;
}

}  // namespace

Isa effective_isa() {
  static const Isa isa = limit_libraries();
  return isa;
}

bool has_bf16_products() {
  if (effective_isa() != Isa::avx512) return false;
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

}  // namespace dcformer
