#pragma once

#include <cstdint>

#include "dcformer/tensor/dtype.h"

/// Products of bf16 operands with f32 sums, on the processor's bf16 instructions. Values below the
/// smallest normal number count as 0.
namespace dcformer::attention {

/// What computes them: dot products of pairs (AVX-512 BF16), or tiles (AMX).
enum class Bf16Unit { none, avx512_bf16, amx };

/// The best that this processor has and DCFORMER_MAX_ISA allows. AVX-512 BF16 counts only where it
/// is faster than f32, which the first call measures.
Bf16Unit bf16_unit();

/// C (+)= A·B in tiles. A: n_a by n_k tiles of 16 rows by 32, rows a_row apart. B: n_k by n_b tiles
/// `[16 pairs][16][2]`, contiguous. C: n_a by n_b tiles of 16 by 16, rows c_row apart. Strides in
/// elements, from tile to tile.
struct TileProduct {
  const BFloat16* a;
  int64_t a_stride, a_k_stride, a_row;
  const BFloat16* b;
  int64_t b_stride, b_k_stride;
  float* c;
  int64_t c_a_stride, c_b_stride, c_row;
  int64_t n_a, n_b, n_k;
  /// Added to C, else C is set.
  bool add;
};
void tile_product(Bf16Unit unit, const TileProduct& product);

/// Readies a thread for tile_product, and frees the unit again.
class Bf16UnitScope {
 public:
  explicit Bf16UnitScope(Bf16Unit unit);
  ~Bf16UnitScope();
  Bf16UnitScope(const Bf16UnitScope&) = delete;
  Bf16UnitScope& operator=(const Bf16UnitScope&) = delete;

 private:
  Bf16Unit unit_;
};

/// Two squares [rows][16] of f32, the halves of a panel, as an A tile [16][32]; rows beyond are 0.
void square_rows_to_tile(const float* left, const float* right, int64_t rows, BFloat16* tile);
/// A square [rows][16] as half of a B tile, [8 pairs of rows][16][2]; rows beyond are 0.
void square_pairs_to_tile(const float* square, int64_t rows, BFloat16* half_tile);

}  // namespace dcformer::attention
