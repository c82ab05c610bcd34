// The only code with AMX and AVX-512 BF16 instructions: called where bf16_unit() says so. Nothing
// inline from other headers may be compiled here, or the linker could take it for all processors.
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dcformer/ops/composed_attention_bfloat16.h"
#include "dcformer/ops/composed_attention_bfloat16_units.h"

namespace dcformer::attention {
namespace {

// Palette 1 with all tiles of 16 rows by 64 bytes, in the processor's layout.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// One to two tiles of A by one to two of B; C in tiles 0 to 3, A in 4 and 5, B in 6 and 7.
template <bool kTwoA, bool kTwoB>
inline void amx_tiles(const TileProduct& p, int64_t i, int64_t j) {
  const BFloat16* a = p.a + i * p.a_stride;
  const BFloat16* b = p.b + j * p.b_stride;
  float* c = p.c + i * p.c_a_stride + j * p.c_b_stride;
  const auto c_bytes = static_cast<size_t>(p.c_row) * 4;
  const auto a_bytes = static_cast<size_t>(p.a_row) * 2;
  if (p.add) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (kTwoB) _tile_loadd(1, c + p.c_b_stride, c_bytes);
    if constexpr (kTwoA) _tile_loadd(2, c + p.c_a_stride, c_bytes);
    if constexpr (kTwoA && kTwoB) _tile_loadd(3, c + p.c_a_stride + p.c_b_stride, c_bytes);
  } else {
    _tile_zero(0);
    if constexpr (kTwoB) _tile_zero(1);
    if constexpr (kTwoA) _tile_zero(2);
    if constexpr (kTwoA && kTwoB) _tile_zero(3);
  }
  for (int64_t k = 0; k < p.n_k; ++k) {
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoB) {
      _tile_loadd(7, b + p.b_stride, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoA) {
      _tile_loadd(5, a + p.a_stride, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kTwoA && kTwoB) _tile_dpbf16ps(3, 5, 7);
    a += p.a_k_stride;
    b += p.b_k_stride;
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (kTwoB) _tile_stored(1, c + p.c_b_stride, c_bytes);
  if constexpr (kTwoA) _tile_stored(2, c + p.c_a_stride, c_bytes);
  if constexpr (kTwoA && kTwoB) _tile_stored(3, c + p.c_a_stride + p.c_b_stride, c_bytes);
}

// kRows rows by one tile's columns stay in registers while the pairs run.
template <int kRows>
inline void dot_rows(const TileProduct& p, const BFloat16* a, const BFloat16* b, float* c) {
  __m512 sum[kRows];
  for (int r = 0; r < kRows; ++r)
    sum[r] = p.add ? _mm512_loadu_ps(c + r * p.c_row) : _mm512_setzero_ps();
  for (int64_t k = 0; k < p.n_k; ++k) {
    for (int64_t pair = 0; pair < 16; ++pair) {
      const auto value = reinterpret_cast<__m512bh>(
          _mm512_loadu_ps(reinterpret_cast<const float*>(b + k * p.b_k_stride + pair * 32)));
      for (int r = 0; r < kRows; ++r) {
        const float* own =
            reinterpret_cast<const float*>(a + r * p.a_row + k * p.a_k_stride + pair * 2);
        sum[r] = _mm512_dpbf16_ps(sum[r], reinterpret_cast<__m512bh>(_mm512_set1_ps(*own)), value);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(c + r * p.c_row, sum[r]);
}

}  // namespace

bool request_amx() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

void configure_amx() {
  // In memory of its own: the compiler takes the instruction to read 8 bytes only, and would leave
  // out the stores of the rest.
  static const TileConfig config;
  _tile_loadconfig(&config);
}

void release_amx() { _tile_release(); }

void amx_product(const TileProduct& p) {
  for (int64_t i = 0; i < p.n_a; i += 2)
    for (int64_t j = 0; j < p.n_b; j += 2) {
      const bool two_a = i + 1 < p.n_a;
      const bool two_b = j + 1 < p.n_b;
      if (two_a && two_b) {
        amx_tiles<true, true>(p, i, j);
      } else if (two_a) {
        amx_tiles<true, false>(p, i, j);
      } else if (two_b) {
        amx_tiles<false, true>(p, i, j);
      } else {
        amx_tiles<false, false>(p, i, j);
      }
    }
}

void dot_product(const TileProduct& p) {
  for (int64_t i = 0; i < p.n_a; ++i)
    for (int64_t j = 0; j < p.n_b; ++j)
      dot_rows<16>(p, p.a + i * p.a_stride, p.b + j * p.b_stride,
                   p.c + i * p.c_a_stride + j * p.c_b_stride);
}

void square_rows_to_tile(const float* left, const float* right, int64_t rows, BFloat16* tile) {
  for (int64_t r = 0; r < 16; ++r) {
    __m512bh both = {};
    if (r < rows)
      both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(right + r * 16), _mm512_loadu_ps(left + r * 16));
    _mm512_storeu_ps(reinterpret_cast<float*>(tile + r * 32), reinterpret_cast<__m512>(both));
  }
}

void square_pairs_to_tile(const float* square, int64_t rows, BFloat16* half_tile) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (int64_t r = 0; r < 16; r += 2) {
    const __m512 even = r < rows ? _mm512_loadu_ps(square + r * 16) : _mm512_setzero_ps();
    const __m512 odd = r + 1 < rows ? _mm512_loadu_ps(square + (r + 1) * 16) : _mm512_setzero_ps();
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
    _mm512_storeu_si512(half_tile + r / 2 * 32, _mm512_permutexvar_epi16(order, both));
  }
}

}  // namespace dcformer::attention
