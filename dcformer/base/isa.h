#pragma once

namespace dcformer {

/// The instruction sets that kernels are written for.
enum class Isa { avx2, avx512, avx512_bf16, amx };

/// The set that our kernels and oneDNN use: the best that the processor has, or less where the
/// environment variable DCFORMER_MAX_ISA (`avx2`, `avx512`, `avx512_bf16` or `amx`) says so. The
/// first call limits Highway's and oneDNN's choice, so it must come before their first use;
/// creating a Context does it. Throws Error for another value of the variable, or where the
/// processor has no AVX2.
Isa effective_isa();

/// True where bf16 products run on bf16 instructions; elsewhere they are computed in f32 on the
/// rounded operands.
bool has_bf16_products();

}  // namespace dcformer
