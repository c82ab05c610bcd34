#pragma once

#include "dcformer/base/context.h"
#include "dcformer/ops/composed_attention_bfloat16.h"
#include "dcformer/ops/composed_attention_pages.h"
#include "dcformer/ops/composed_attention_tiles.h"

/// The products of the forward pass, between a block of rows of one group and panels of keys, in
/// two forms: on f32 vectors (which also read bf16 pages, and round what they multiply with bf16
/// values), and on bf16 tiles.
namespace dcformer::attention {

/// Rows of one group as [M][room][width], zeros beyond head_dim and beyond the block's rows.
template <typename To>
void pack_rows(ConstHeads heads, const Block& block, const TileSizes& sizes, int64_t group,
               int64_t room, int64_t width, To* packed);

/// o = A''·v and A = q·kᵀ, unscaled, on f32 vectors.
template <typename T>
class FloatForward {
 public:
  using Key = T;
  static constexpr bool kWholeBands = false;

  FloatForward(Context& context, const AttentionInputs& inputs, const TileSizes& sizes,
               const BlockLimits& limits, const PageLayout& layout,
               std::span<const std::span<void* const>> pages)
      : in_(inputs),
        sizes_(sizes),
        layout_(layout),
        pages_(pages),
        rows_(context, sizes.mix.heads * limits.rows * sizes.padded_dim) {}

  /// Takes up a block of one group.
  void begin(const Block& block, int64_t group) {
    block_ = &block;
    group_ = group;
    panels_ = {&layout_, pages_[static_cast<size_t>(block.sequence_index)]};
    pack_rows(in_.q, block, sizes_, group, block.rows, sizes_.padded_dim, rows_.data());
  }
  /// Null where there is no key side.
  const T* key_block(int64_t p, int64_t stage) const {
    return panels_.block(block_->first_panel() + p, group_, stage);
  }
  void scores(int64_t p, const PanelTile& tile) const {
    for (int64_t m = 0; m < sizes_.mix.heads; ++m)
      panel_scores<T>(row(m, 0), sizes_.padded_dim, sizes_.head_dim,
                      panels_.keys(block_->first_panel() + p, sizes_.kv_head(group_, m)),
                      squares_of(tile, m));
  }
  /// The outputs take the place of the queries.
  void begin_output() {
    std::fill_n(rows_.data(), sizes_.mix.heads * block_->rows * sizes_.padded_dim, 0.0f);
  }
  void add_values(int64_t p, const PanelTile& tile) {
    if (in_.q.dtype == DType::bf16) round_values(tile.data, tile.n_band() * tile.band_numel());
    const int64_t first = (block_->first_panel() + p) * kPanel;
    for (int64_t m = 0; m < sizes_.mix.heads; ++m)
      panel_values<T>(squares_of(tile, m),
                      panels_.values(block_->first_panel() + p, sizes_.kv_head(group_, m)),
                      sizes_.padded_dim, std::max<int64_t>(0, block_->key_begin - first),
                      std::min(kPanel, block_->key_end - first), row(m, 0), sizes_.padded_dim);
  }
  void end_output() {}
  const float* output(int64_t m, int64_t r) const { return row(m, r); }

 private:
  float* row(int64_t m, int64_t r) const {
    return rows_.data() + (m * block_->rows + r) * sizes_.padded_dim;
  }

  const AttentionInputs& in_;
  const TileSizes& sizes_;
  const PageLayout& layout_;
  std::span<const std::span<void* const>> pages_;
  Buffer<float> rows_;
  Panels<T> panels_;
  const Block* block_ = nullptr;
  int64_t group_ = 0;
};

/// Sums over keys on bf16 tiles: o[m] = Σ_j a[m][row][j]·x[j] for the heads of a block, whose
/// panels come one by one.
class TileRowSums {
 public:
  TileRowSums(Context& context, const TileSizes& sizes, const BlockLimits& limits,
              const TilePages& pages);

  /// Starts at 0 for a block, whose first panel is page `first_page`.
  void begin(const Block& block, int64_t group, int64_t first_page);
  void add(int64_t p, const PanelTile& a);
  void finish() { multiply_waiting(); }
  const float* row(int64_t m, int64_t r) const {
    return sums_.data() + (m * n_band_ * kSide + r) * sizes_.padded_dim;
  }

 private:
  // Panels that are multiplied at once, so that the sums are loaded and stored less often.
  static constexpr int64_t kPanelsAtOnce = 4;

  void multiply_waiting();
  BFloat16* weights(int64_t p, int64_t m, int64_t band) const {
    return weights_.data() + ((p * sizes_.mix.heads + m) * n_band_ + band) * kSide * kPanel;
  }

  const TileSizes& sizes_;
  const TilePages& pages_;
  Buffer<BFloat16> weights_;
  Buffer<float> sums_;
  int64_t group_ = 0;
  int64_t n_band_ = 0;
  int64_t first_page_ = 0;
  int64_t waiting_begin_ = 0;
  int64_t n_waiting_ = 0;
};

/// Rows of a block as first operands of bf16 tile products that sum over head_dim.
class TileRows {
 public:
  TileRows(Context& context, const TileSizes& sizes, const BlockLimits& limits);

  void begin(ConstHeads heads, const Block& block, int64_t group);
  /// tile = rows · pagesᵀ for the page of a panel.
  void multiply(const TilePages& pages, int64_t page, const PanelTile& tile) const;

 private:
  const TileSizes& sizes_;
  int64_t depth_;
  Buffer<BFloat16> rows_;
  int64_t group_ = 0;
  int64_t n_band_ = 0;
};

/// The keys' side of TileForward.
struct TileForwardPages {
  TileForwardPages(Context& context, const AttentionInputs& inputs);

  PageIndex index;
  TilePages keys;
  TilePages values;
  PackedPages blocks;
};

/// FloatForward's products on bf16 tiles.
class TileForward {
 public:
  using Key = float;
  static constexpr bool kWholeBands = true;

  TileForward(Context& context, const AttentionInputs& inputs, const TileSizes& sizes,
              const BlockLimits& limits, const TileForwardPages& pages);

  void begin(const Block& block, int64_t group);
  const float* key_block(int64_t p, int64_t stage) const {
    return blocks_.block(block_->first_panel() + p, group_, stage);
  }
  void scores(int64_t p, const PanelTile& tile) const {
    queries_.multiply(pages_.keys, first_page_ + p, tile);
  }
  void begin_output() { output_.begin(*block_, group_, first_page_); }
  void add_values(int64_t p, const PanelTile& tile) { output_.add(p, tile); }
  void end_output() { output_.finish(); }
  const float* output(int64_t m, int64_t r) const { return output_.row(m, r); }

 private:
  const AttentionInputs& in_;
  const TileForwardPages& pages_;
  Bf16UnitScope scope_{bf16_unit()};
  TileRows queries_;
  TileRowSums output_;
  Panels<float> blocks_;
  const Block* block_ = nullptr;
  int64_t group_ = 0;
  int64_t first_page_ = 0;
};

}  // namespace dcformer::attention
