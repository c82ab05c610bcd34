#pragma once

#include <cstdint>

#include "dcformer/ops/composed_attention.h"

namespace dcformer::attention {

/// The most heads of a group: the kernels keep one vector of each on the stack.
constexpr int64_t kMaxGroupHeads = 1024;

/// A tile of scores of one group: M heads by `rows` queries by `columns` keys (a multiple of 32).
struct Tile {
  float* data = nullptr;
  int64_t head_stride = 0;
  int64_t row_stride = 0;

  float* at(int64_t head, int64_t row) const {
    return data + head * head_stride + row * row_stride;
  }
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
                  const T* k_panel, float* scores, int64_t row_stride);

/// o[row][0..width) += Σ_j a[row][j]·v[j][0..width) over j of [begin, end) of one panel, ascending;
/// width is a multiple of 16.
template <typename T>
void panel_values(const float* a, int64_t rows, int64_t row_stride, const T* v_panel, int64_t width,
                  int64_t begin, int64_t end, float* o, int64_t o_stride);

/// g[j][0..width) += Σ_row a[row][j]·x[row][0..width) for j of [begin, end); rows ascend.
void panel_outer(const float* a, int64_t rows, int64_t row_stride, const float* x, int64_t x_stride,
                 int64_t width, int64_t begin, int64_t end, float* g);

/// Composes the 32 columns from `column` on: out = compose(in · row_scale) for all rows. key_block
/// is
/// [(2R+1)·M][32] or null; row_scale [M][rows] or null. in and out may be one tile.
template <typename T>
void compose_panel(const Tile& in, const Tile& out, int64_t rows, int64_t column,
                   const MixSizes& sizes, const MixWeights& weights, const T* key_block,
                   const float* row_scale);

/// Gradient of compose_panel at input `in`: `d` holds the gradient of its output and is replaced by
/// that of its input. Added to: dquery [rows][(2R+1)·M][16] (partial sums over columns), dkey
/// [(2R+1)·M][32], dbase [M][M][16] (partial sums); null where that side is off.
void compose_panel_backward(const Tile& in, const Tile& d, int64_t rows, int64_t column,
                            const MixSizes& sizes, const MixWeights& weights,
                            const float* key_block, float* dquery, float* dkey, float* dbase);

/// One row: x[j] = e^(x[j] - maximum) over n columns (a multiple of 32); sets the maximum (0 for a
/// row of -inf) and 1/sum (0 then).
void softmax_row(float* x, int64_t n, float* maximum, float* inverse_sum);
/// The same with known statistics: x[j] = e^(x[j] - maximum)·inverse_sum.
void softmax_row_known(float* x, int64_t n, float maximum, float inverse_sum);
/// d[j] = p[j]·(d[j] - Σ_j p[j]·d[j]).
void softmax_row_backward(const float* p, float* d, int64_t n);
/// Rounds n values to bf16, kept as f32.
void round_row(float* x, int64_t n);
/// Σ over the 16 partial sums of each of n entries: out[i] = Σ_l x[16·i + l].
void reduce_lanes(const float* x, int64_t n, float* out);

}  // namespace dcformer::attention
