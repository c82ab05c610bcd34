#pragma once

#include <cstdint>

#include "dcformer/ops/composed_attention.h"

namespace dcformer::attention {

/// Rows and keys of a square, the unit that tiles are made of.
constexpr int64_t kSide = 16;

/// The scores of one group of M heads for up to 16 rows against one panel of keys: for each half of
/// the panel the squares `[rows][16]` of all heads, one after the other, so that mixing walks
/// memory in order and stays in the nearest cache.
struct Band {
  float* data = nullptr;
  int64_t heads = 0;
  /// Rows in use, and rows that a square has room for.
  int64_t rows = 0;
  int64_t room = 0;

  int64_t square_numel() const { return room * kSide; }
  float* square(int64_t head, int64_t half) const {
    return data + (half * heads + head) * square_numel();
  }
};

/// The bands of a block of rows against one panel.
struct PanelTile {
  float* data = nullptr;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t room = 0;

  int64_t n_band() const { return (rows + kSide - 1) / kSide; }
  int64_t band_numel() const { return 2 * heads * room * kSide; }
  Band band(int64_t b) const {
    const int64_t left = rows - b * kSide;
    return {data + b * band_numel(), heads, left < kSide ? left : kSide, room};
  }
  /// The 16 entries of a row and half.
  float* at(int64_t head, int64_t row, int64_t half) const {
    return data + row / kSide * band_numel() + (half * heads + head) * room * kSide +
           row % kSide * kSide;
  }
};

/// One head's squares of a panel: those of row 16·b and half c begin at data + b·band + c·half.
struct HeadSquares {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t band = 0;
  int64_t half = 0;

  float* at(int64_t row, int64_t c) const {
    return data + row / kSide * band + c * half + row % kSide * kSide;
  }
};
inline HeadSquares squares_of(const PanelTile& tile, int64_t head) {
  return {tile.at(head, 0, 0), tile.rows, tile.band_numel(), tile.heads * tile.room * kSide};
}

/// Sizes of the composition within a tile.
struct MixSizes {
  int64_t heads = 1;
  int64_t rank = 0;
  int64_t block() const { return (2 * rank + 1) * heads; }
};

/// The weights of one stage for a band: query blocks [rows][(2R+1)·M] of scalars, the base [M][M],
/// either null. Key blocks are passed panel by panel.
struct MixWeights {
  const float* query = nullptr;
  const float* base = nullptr;
};

/// A factor for each head and row of a band: data[m·head_stride + row].
struct RowScales {
  const float* data = nullptr;
  int64_t head_stride = 0;
};

/// scores[row][j] = Σ_d q[row][d]·k[d][j] for one head and panel, d ascending. q's rows lie
/// q_stride apart.
template <typename T>
void panel_scores(const float* q, int64_t q_stride, int64_t head_dim, const T* k_panel,
                  const HeadSquares& scores);

/// o[row][0..width) += Σ_j a[row][j]·v[j][0..width) over j of [begin, end) of one panel, ascending;
/// width is a multiple of 16.
template <typename T>
void panel_values(const HeadSquares& a, const T* v_panel, int64_t width, int64_t begin, int64_t end,
                  float* o, int64_t o_stride);

/// g[j][0..width) += Σ_row a[row][j]·x[row][0..width) for j of [begin, end); rows ascend.
void panel_outer(const HeadSquares& a, const float* x, int64_t x_stride, int64_t width,
                 int64_t begin, int64_t end, float* g);

/// Composes a band: out = compose(in · scales). key_block is [(2R+1)·M][32] or null. in and out may
/// be one.
template <typename T>
void compose_band(const Band& in, const Band& out, const MixSizes& sizes, const MixWeights& weights,
                  const T* key_block, const RowScales& scales);

/// Gradient of compose_band at input `in`, with respect to in · scales, for the gradient `d` of its
/// output: `d_in` is set, and may be d. Added to: dquery [rows][(2R+1)·M], dkey
/// [(2R+1)·M][32], dbase [M][M][16] (partial sums); null where that side is off.
void compose_band_backward(const Band& in, const Band& d, const Band& d_in, const MixSizes& sizes,
                           const MixWeights& weights, const float* key_block,
                           const RowScales& scales, float* dquery, float* dkey, float* dbase);

// The softmax of one head's band, whose panels come one by one. Statistics are [16], one a row.

/// With x' = x·scale and m' the larger of maximum[row] and the row's 32 x': e = e^(x' - m'), sums =
/// sums·e^(maximum - m') + Σ e, maximum = reference = m'. Starts from maximum -inf and sums 0.
void softmax_band(const Band& x, const Band& e, int64_t head, float scale, float* maximum,
                  float* sums, float* reference);
/// From the statistics [n_chunk][n] of chunks of panels to those of whole rows: maximum[i] (0 for a
/// row of -inf alone) and inverse_sum[i] (0 then).
void softmax_finish(int64_t n, int64_t n_chunk, const float* maxima, const float* sums,
                    float* maximum, float* inverse_sum);
/// scale[i] = e^(reference[i] - maximum[i])·inverse_sum[i]: turns a panel's values into
/// probabilities. scale may be reference.
void softmax_scales(int64_t n, const float* reference, const float* maximum,
                    const float* inverse_sum, float* scale);
/// With known statistics: p = e^(x·scale - maximum[row])·inverse_sum[row].
void softmax_band_known(const Band& x, const Band& p, int64_t head, float scale,
                        const float* maximum, const float* inverse_sum);
/// sums[row] += Σ_j p·d.
void softmax_band_dot(const Band& p, const Band& d, int64_t head, float* sums);
/// out = p·(d - dot[row]).
void softmax_band_backward(const Band& p, const Band& d, int64_t head, const float* dot,
                           const Band& out);

/// Rounds n values (a multiple of 16) to bf16, kept as f32.
void round_values(float* x, int64_t n);
/// Σ over the 16 partial sums of each of n entries: out[i] = Σ_l x[16·i + l].
void reduce_lanes(const float* x, int64_t n, float* out);

}  // namespace dcformer::attention
