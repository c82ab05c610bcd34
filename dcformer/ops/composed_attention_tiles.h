#pragma once

#include <span>
#include <vector>

#include "dcformer/ops/composed_attention.h"
#include "dcformer/ops/composed_attention_kernels.h"
#include "dcformer/tensor/tensor.h"

/// What the forward and backward passes of composed attention share: which keys a block of queries
/// sees, the pages that hold them, and the first half of a tile's life.
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

/// Throws Error, naming the argument, for shapes that disagree.
void check_inputs(const AttentionInputs& inputs, bool keys_in_pages);
/// The same for an output that is null, or shares memory with an input.
void check_output(const AttentionInputs& inputs, Heads o, bool keys_in_pages);
/// The same for the gradients, which may not share memory with each other either.
void check_gradients(const AttentionInputs& inputs, HeadView<const float> do_,
                     const AttentionGradients& gradients);

/// Sets what each row does not see of a block's panel to `value`, for all heads.
void fill_hidden(const AttentionInputs& inputs, const Block& block, int64_t panel,
                 const PanelTile& tile, int64_t heads, float value);

/// Pages of the keys of all sequences, packed f32.
class PackedPages {
 public:
  PackedPages(Context& context, const AttentionInputs& inputs, ConstHeads k, ConstHeads v,
              bool with_blocks);
  const PageLayout& layout() const { return layout_; }
  std::span<const std::span<void* const>> pages() const { return spans_; }

 private:
  PageLayout layout_;
  Tensor memory_;
  std::vector<void*> pages_;
  std::vector<std::span<void* const>> spans_;
};

PageLayout page_layout(const AttentionInputs& inputs, DType dtype, int64_t n_kv_head,
                       int64_t head_dim, bool with_blocks);

/// The panels of one sequence, typed.
template <typename T>
struct Panels {
  const PageLayout* layout;
  std::span<void* const> pages;

  const T* page(int64_t panel) const {
    return static_cast<const T*>(pages[static_cast<size_t>(panel)]);
  }
  const T* keys(int64_t panel, int64_t kv_head) const {
    return page(panel) + kv_head * layout->head_dim * kPanel;
  }
  const T* values(int64_t panel, int64_t kv_head) const {
    return page(panel) + layout->value_offset() + kv_head * layout->value_width() * kPanel;
  }
  /// Null where there is no key side.
  const T* block(int64_t panel, int64_t group, int64_t stage) const {
    if (layout->block == 0) return nullptr;
    return page(panel) + layout->block_offset() + (group * 2 + stage) * layout->block * kPanel;
  }
};

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

/// A buffer of f32, uninitialised.
class Floats {
 public:
  Floats(Context& context, int64_t n)
      : tensor_(Tensor::empty(context, DType::f32, {n})), data_(tensor_.data<float>()) {}
  float* data() const { return data_; }

 private:
  Tensor tensor_;
  float* data_;
};

/// A tile of `heads` by `rows` by `n_panel` panels in memory of tile_numel elements; the stride
/// between heads is padded off powers of two.
Tile make_tile(float* memory, int64_t heads, int64_t rows);
int64_t tile_numel(int64_t heads, int64_t rows, int64_t n_panel);

/// Packs rows of one group to [M][rows][padded_dim] f32, times `factor`, zeros beyond head_dim.
void pack_rows(ConstHeads heads, const Block& block, const TileSizes& sizes, int64_t group,
               float factor, float* packed);

/// True where there is nothing to mix with: every head is then a group of its own.
bool is_plain(const Composition& composition);
/// True where the stage (0 pre, 1 post) mixes anything.
bool stage_mixes(const Composition& composition, int64_t stage);

/// The query-side blocks of one stage and group as [rows][(2R+1)·M] in `packed`, gates 0 where off;
/// and the base. A side that is off has null.
MixWeights stage_weights(const Composition& composition, const Block& block, const TileSizes& sizes,
                         int64_t group, int64_t stage, float* packed);

/// Scores of all heads of a group against a block's panel: products with its keys.
template <typename T>
void compute_scores(const Block& block, int64_t panel, const TileSizes& sizes,
                    const Panels<T>& panels, int64_t group, const float* rows,
                    const PanelTile& tile) {
  for (int64_t m = 0; m < sizes.mix.heads; ++m)
    panel_scores<T>(
        rows + m * block.rows * sizes.padded_dim, block.rows, sizes.padded_dim, sizes.head_dim,
        panels.keys(block.first_panel() + panel, sizes.kv_head(group, m)), tile.at(m, 0));
}

/// o[M][rows][padded_dim] += tile · values, over the keys of a block's panel that the block sees.
template <typename T>
void multiply_values(const Block& block, int64_t panel, const TileSizes& sizes,
                     const Panels<T>& panels, int64_t group, const PanelTile& tile, float* o) {
  const int64_t base = (block.first_panel() + panel) * kPanel;
  for (int64_t m = 0; m < sizes.mix.heads; ++m)
    panel_values<T>(tile.at(m, 0), block.rows,
                    panels.values(block.first_panel() + panel, sizes.kv_head(group, m)),
                    sizes.padded_dim, std::max<int64_t>(0, block.key_begin - base),
                    std::min(kPanel, block.key_end - base), o + m * block.rows * sizes.padded_dim,
                    sizes.padded_dim);
}

}  // namespace dcformer::attention
