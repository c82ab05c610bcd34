#pragma once

#include <cstdint>

#include "dcformer/ops/composed_attention.h"

namespace dcformer::attention {

/// The scores of one group against one panel of keys: M heads by `rows` queries by 32 keys.
struct PanelTile {
  float* data = nullptr;
  int64_t head_stride = 0;

  float* at(int64_t head, int64_t row) const { return data + head * head_stride + row * kPanel; }
};

/// A tile: its panels one after the other, so that a pass over them reads and writes memory in
/// order.
struct Tile {
  float* data = nullptr;
  int64_t head_stride = 0;
  int64_t panel_stride = 0;

  PanelTile panel(int64_t p) const { return {data + p * panel_stride, head_stride}; }
};

/// Sizes of the composition within a tile.
struct MixSizes {
  int64_t heads = 1;
  int64_t rank = 0;
  int64_t block() const { return (2 * rank + 1) * heads; }
};

/// The weights of one stage for a tile: query blocks [rows][(2R+1)·M] of scalars, the base [M][M],
/// either null. Key blocks are passed panel by panel.
struct MixWeights {
  const float* query = nullptr;
  const float* base = nullptr;
};

/// scores[row][0..32) = Σ_d q[row][d]·k[d][0..32) for one head and panel, d ascending. q's rows lie
/// q_stride apart.
template <typename T>
void panel_scores(const float* q, int64_t rows, int64_t q_stride, int64_t head_dim,
                  const T* k_panel, float* scores);

/// o[row][0..width) += Σ_j a[row][j]·v[j][0..width) over j of [begin, end) of one panel, ascending;
/// width is a multiple of 16. a is [rows][32].
template <typename T>
void panel_values(const float* a, int64_t rows, const T* v_panel, int64_t width, int64_t begin,
                  int64_t end, float* o, int64_t o_stride);

/// g[j][0..width) += Σ_row a[row][j]·x[row][0..width) for j of [begin, end); rows ascend.
void panel_outer(const float* a, int64_t rows, const float* x, int64_t x_stride, int64_t width,
                 int64_t begin, int64_t end, float* g);

/// Composes a panel: out = compose(in · row_scale) for all rows. key_block is [(2R+1)·M][32] or
/// null; row_scale [M][rows] or null. in and out may be one.
template <typename T>
void compose_panel(const PanelTile& in, const PanelTile& out, int64_t rows, const MixSizes& sizes,
                   const MixWeights& weights, const T* key_block, const float* row_scale);

/// Gradient of compose_panel at input `in`: `d` holds the gradient of its output and is replaced by
/// that of its input. Added to: dquery [rows][(2R+1)·M][16] (partial sums over columns), dkey
/// [(2R+1)·M][32], dbase [M][M][16] (partial sums); null where that side is off.
void compose_panel_backward(const PanelTile& in, const PanelTile& d, int64_t rows,
                            const MixSizes& sizes, const MixWeights& weights,
                            const float* key_block, float* dquery, float* dkey, float* dbase);

// The softmax of rows whose panels come one by one, of one head: x, p and d are [rows][32], sums
// [rows][16] (partial sums over columns).

/// With m' the larger of maximum[row] and the row's 32 scores: x = e^(x - m'), sums =
/// sums·e^(maximum - m') + x, maximum = reference = m'. Starts from maximum -inf and sums 0.
void softmax_panel(float* x, int64_t rows, float* maximum, float* sums, float* reference);
/// After the last panel: maximum[i] (0 for a row of -inf alone) and inverse_sum[i] (0 then) of n
/// rows.
void softmax_finish(int64_t n, float* maximum, const float* sums, float* inverse_sum);
/// scale[i] = e^(reference[i] - maximum[i])·inverse_sum[i]: turns a panel's values into
/// probabilities. scale may be reference.
void softmax_scales(int64_t n, const float* reference, const float* maximum,
                    const float* inverse_sum, float* scale);
/// With known statistics: x = e^(x - maximum[row])·inverse_sum[row].
void softmax_panel_known(float* x, int64_t rows, const float* maximum, const float* inverse_sum);
/// sums += p·d.
void softmax_panel_dot(const float* p, const float* d, int64_t rows, float* sums);
/// d = p·(d - dot[row]).
void softmax_panel_backward(const float* p, float* d, int64_t rows, const float* dot);

/// Rounds n values to bf16, kept as f32.
void round_values(float* x, int64_t n);
/// Σ over the 16 partial sums of each of n entries: out[i] = Σ_l x[16·i + l].
void reduce_lanes(const float* x, int64_t n, float* out);

}  // namespace dcformer::attention
