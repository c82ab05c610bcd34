#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "dcformer/ops/composed_attention.h"
#include "dcformer/ops/composed_attention_kernels.h"
#include "dcformer/tensor/tensor.h"

/// What the forward and backward passes of composed attention share: which keys a block of queries
/// sees, the memory of a tile, and the weights of its stages.
namespace dcformer::attention {

/// A block of consecutive queries of one sequence, and the keys that any of them sees.
struct Block {
  const AttentionSequence* sequence = nullptr;
  int64_t sequence_index = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t key_begin = 0;
  int64_t key_end = 0;

  int64_t first_panel() const { return key_begin / kPanel; }
  int64_t n_panel() const {
    return key_end > key_begin ? (key_end + kPanel - 1) / kPanel - first_panel() : 0;
  }
  int64_t query(int64_t row) const { return sequence->query_begin + first_row + row; }
};

/// The visible keys [begin, end) of one query by causality, window and length (segments aside).
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};
KeyRange visible_keys(const AttentionMask& mask, const AttentionSequence& sequence, int64_t row);

/// The blocks of a sequence, in order. Their height depends on shapes alone.
std::vector<Block> blocks_of(const AttentionInputs& inputs, int64_t sequence_index);

/// What the largest of some blocks takes.
struct BlockLimits {
  BlockLimits(std::span<const Block> blocks, bool whole_bands);

  int64_t rows = 1;
  int64_t n_panel = 0;
  /// Rows that a tile has room for, times n_panel, of one block.
  int64_t row_panels = 0;
};

/// Throws Error, naming the argument, for shapes that disagree.
void check_inputs(const AttentionInputs& inputs, bool keys_in_pages);
/// The same for an output that is null, or shares memory with an input.
void check_output(const AttentionInputs& inputs, Heads o, bool keys_in_pages);
/// The same for the gradients, which may not share memory with each other either.
void check_gradients(const AttentionInputs& inputs, HeadView<const float> do_,
                     const AttentionGradients& gradients);

/// Sets what each row of band b does not see of a block's panel to `value`, for all heads.
void fill_hidden(const AttentionInputs& inputs, const Block& block, int64_t panel, int64_t b,
                 const Band& band, float value);

/// Sizes that every tile of a call shares.
struct TileSizes {
  explicit TileSizes(const AttentionInputs& inputs);

  int64_t n_head, n_kv_head, head_dim, padded_dim, n_group;
  MixSizes mix;
  float scale;
  /// The key/value head of head m of a group.
  int64_t kv_head(int64_t group, int64_t m) const {
    return (group * mix.heads + m) * n_kv_head / n_head;
  }
};

/// A buffer of n elements, uninitialised.
template <typename T>
class Buffer {
 public:
  Buffer(Context& context, int64_t n)
      : tensor_(Tensor::empty(context, dtype_of<T>(), {n})), data_(tensor_.data<T>()) {}
  T* data() const { return data_; }

 private:
  Tensor tensor_;
  T* data_;
};

inline int64_t whole_bands(int64_t rows) { return (rows + kSide - 1) / kSide * kSide; }
/// Rows of a square that holds `rows` rows or more.
inline int64_t square_room(int64_t rows, bool whole_bands) {
  return whole_bands ? kSide : std::min(rows, kSide);
}

/// A tile of `heads` by `rows` by panels, panel by panel.
class Tile {
 public:
  Tile() = default;
  /// In memory of numel(heads, row_panels).
  Tile(float* memory, int64_t heads, int64_t rows, int64_t room)
      : first_{memory, heads, rows, room} {}
  PanelTile panel(int64_t p) const {
    PanelTile tile = first_;
    tile.data += p * first_.n_band() * first_.band_numel();
    return tile;
  }
  static int64_t numel(int64_t heads, int64_t row_panels) { return row_panels * heads * kPanel; }

 private:
  PanelTile first_;
};

/// True where there is nothing to mix with: every head is then a group of its own.
bool is_plain(const Composition& composition);
/// True where the stage (0 pre, 1 post) mixes anything.
bool stage_mixes(const Composition& composition, int64_t stage);

/// The weights of one stage and group for a block's rows; the query side as [rows][(2R+1)·M] in
/// `packed`, gates 0 where off. A side that is off is null.
MixWeights stage_weights(const Composition& composition, const Block& block, const TileSizes& sizes,
                         int64_t group, int64_t stage, float* packed);
/// Those of one band of them.
MixWeights band_weights(const MixWeights& weights, const MixSizes& sizes, int64_t band);

}  // namespace dcformer::attention
