#pragma once

#include <algorithm>
#include <vector>

#include "dcformer/ops/composed_attention_operands.h"

/// The products and the sums over queries of the backward pass, in the two forms of
/// composed_attention_operands.h.
namespace dcformer::attention {

/// Sums over queries: each lane walks its own blocks in order and adds to its own accumulators,
/// page by page; the lanes are then added in order. Their number depends on the number of sequences
/// alone.
class Accumulators {
 public:
  /// `in_tiles`: the pages of dk and dv are [D'/16][2 halves][16 of d][16 keys], else [32][D'], D'
  /// being head_dim rounded up to 16.
  Accumulators(Context& context, const AttentionInputs& in, const TileSizes& sizes, int64_t n_lane,
               bool in_tiles)
      : sizes_(sizes), n_lane_(n_lane), in_tiles_(in_tiles) {
    block_ = in.composition.key.data == nullptr ? 0 : sizes.mix.block();
    head_numel_ = kPanel * sizes.padded_dim;
    page_numel_ = 2 * sizes.n_kv_head * head_numel_ + sizes.n_group * 2 * block_ * kPanel;
    for (const AttentionSequence& s : in.sequences) {
      first_page_.push_back(n_page_);
      n_page_ += (s.n_key + kPanel - 1) / kPanel;
    }
    const int64_t heads = sizes.mix.heads;
    base_numel_ = in.composition.pre_base == nullptr && in.composition.post_base == nullptr
                      ? 0
                      : sizes.n_group * 2 * heads * heads * kSide;
    memory_ =
        Tensor::empty(context, DType::f32, {n_lane, std::max<int64_t>(1, n_page_) * page_numel_});
    data_ = memory_.data<float>();
    base_ =
        Tensor::zeros(context, DType::f32,
                      {n_lane * static_cast<int64_t>(in.sequences.size()) + 1, base_numel_ + 1});
  }

  /// Sets the pages of one lane and sequence to zero, on the thread that will use them.
  void clear(int64_t lane, int64_t sequence, int64_t n_key) {
    std::fill_n(page(lane, sequence, 0), (n_key + kPanel - 1) / kPanel * page_numel_, 0.0f);
  }
  /// Adds all lanes of a page to its first, in order.
  void add_lanes(int64_t sequence, int64_t panel) {
    float* sum = page(0, sequence, panel);
    for (int64_t lane = 1; lane < n_lane_; ++lane) {
      const float* part = page(lane, sequence, panel);
      for (int64_t i = 0; i < page_numel_; ++i) sum[i] += part[i];
    }
  }
  float* dk(int64_t lane, int64_t sequence, int64_t panel, int64_t kv_head) {
    return page(lane, sequence, panel) + kv_head * head_numel_;
  }
  float* dv(int64_t lane, int64_t sequence, int64_t panel, int64_t kv_head) {
    return page(lane, sequence, panel) + (sizes_.n_kv_head + kv_head) * head_numel_;
  }
  float* dblock(int64_t lane, int64_t sequence, int64_t panel, int64_t group, int64_t stage) {
    if (block_ == 0) return nullptr;
    return page(lane, sequence, panel) + 2 * sizes_.n_kv_head * head_numel_ +
           (group * 2 + stage) * block_ * kPanel;
  }
  /// Partial sums [M][M][16] of one group and stage, for a task of the backward pass.
  float* dbase(int64_t task, int64_t group, int64_t stage) {
    const int64_t size = sizes_.mix.heads * sizes_.mix.heads * kSide;
    return base_.data<float>() + task * (base_numel_ + 1) + (group * 2 + stage) * size;
  }
  bool has_base() const { return base_numel_ != 0; }
  int64_t n_lane() const { return n_lane_; }
  /// Where the entry d of a key stands in a page of dk or dv.
  int64_t place(int64_t slot, int64_t d) const {
    if (!in_tiles_) return slot * sizes_.padded_dim + d;
    return (d / kSide * 2 + slot / kSide) * kSide * kSide + d % kSide * kSide + slot % kSide;
  }

 private:
  float* page(int64_t lane, int64_t sequence, int64_t panel) {
    return data_ + (lane * std::max<int64_t>(1, n_page_) +
                    first_page_[static_cast<size_t>(sequence)] + panel) *
                       page_numel_;
  }

  TileSizes sizes_;
  int64_t n_lane_;
  bool in_tiles_;
  int64_t block_ = 0;
  int64_t head_numel_ = 0;
  int64_t page_numel_ = 0;
  int64_t base_numel_ = 0;
  int64_t n_page_ = 0;
  std::vector<int64_t> first_page_;
  Tensor memory_;
  Tensor base_;
  float* data_;
};

/// The keys' side of FloatBackward. The second one has the parts changed over: do·vᵀ needs v as the
/// keys lie, dA·k needs k as the values lie.
struct FloatBackwardPages {
  FloatBackwardPages(Context& context, const AttentionInputs& inputs)
      : keys(context, inputs, inputs.k, inputs.v, true),
        values(context, inputs, inputs.v, inputs.k, false) {}

  PackedPages keys;
  PackedPages values;
};

/// The products of the backward pass on f32 vectors, for one lane of the sums.
class FloatBackward {
 public:
  using Pages = FloatBackwardPages;
  static constexpr bool kWholeBands = false;
  /// Whether the second pass finds the scores in the tile: computing them again would cost more.
  static constexpr bool kKeepsScores = true;

  FloatBackward(Context& context, const AttentionInputs& inputs, const TileSizes& sizes,
                const BlockLimits& limits, const Pages& pages, Accumulators& sums, int64_t lane);

  /// Takes up a block of one group.
  void begin(const Block& block, int64_t group, HeadView<const float> do_);
  /// Null where there is no key side.
  const float* key_block(int64_t p, int64_t stage) const {
    return keys_.block(block_->first_panel() + p, group_, stage);
  }
  /// tile = q·kᵀ, unscaled.
  void scores(int64_t p, const PanelTile& tile) const { multiply(p, keys_, q(), tile); }
  /// tile = do·vᵀ.
  void value_gradients(int64_t p, const PanelTile& tile) const {
    multiply(p, values_, d_out(), tile);
  }
  /// dv += A''ᵀ·do. Here and below the operands are rounded, in place, where the others are bf16.
  void add_dv(int64_t p, const PanelTile& composed);
  /// dk += dAᵀ·q and dq += dA·k, both unscaled.
  void add_dk_and_dq(int64_t p, const PanelTile& gradient);
  void end() {}
  const float* dq(int64_t m, int64_t r) const {
    return dq() + (m * block_->rows + r) * sizes_.padded_dim;
  }

 private:
  float* q() const { return rows_.data(); }
  float* d_out() const { return rows_.data() + row_numel_; }
  float* dq() const { return rows_.data() + 2 * row_numel_; }
  int64_t row(int64_t m) const { return m * block_->rows * sizes_.padded_dim; }
  void multiply(int64_t p, const Panels<float>& panels, const float* rows,
                const PanelTile& tile) const;
  // The keys of a panel that the block sees.
  KeyRange keys_of(int64_t p) const;

  const AttentionInputs& in_;
  const TileSizes& sizes_;
  const Pages& pages_;
  Accumulators& sums_;
  int64_t lane_;
  int64_t row_numel_;
  Buffer<float> rows_;
  Panels<float> keys_, values_;
  const Block* block_ = nullptr;
  int64_t group_ = 0;
};

/// The keys' side of TileBackward.
struct TileBackwardPages {
  TileBackwardPages(Context& context, const AttentionInputs& inputs);

  PageIndex index;
  TilePages keys;
  TilePages keys_by_key;
  TilePages values;
  PackedPages blocks;
};

/// A block's rows as first operands of tile products that sum over rows, transposed: for each head
/// [D'/16][rows/32][16 of d][32 rows], zeros beyond head_dim and beyond the rows.
class TileColumns {
 public:
  TileColumns(Context& context, const TileSizes& sizes, const BlockLimits& limits);
  void begin(ConstHeads heads, const Block& block, int64_t group);
  /// sum += columns · pairs for head m: `pairs` [rows/32][2 halves] B tiles, `sum` a page of the
  /// accumulators.
  void multiply(int64_t m, const BFloat16* pairs, float* sum) const;

 private:
  const TileSizes& sizes_;
  Buffer<BFloat16> columns_;
  int64_t n_step_ = 0;
};

/// FloatBackward's products on bf16 tiles.
class TileBackward {
 public:
  using Pages = TileBackwardPages;
  static constexpr bool kWholeBands = true;
  static constexpr bool kKeepsScores = false;

  TileBackward(Context& context, const AttentionInputs& inputs, const TileSizes& sizes,
               const BlockLimits& limits, const Pages& pages, Accumulators& sums, int64_t lane);

  void begin(const Block& block, int64_t group, HeadView<const float> do_);
  const float* key_block(int64_t p, int64_t stage) const {
    return blocks_.block(block_->first_panel() + p, group_, stage);
  }
  void scores(int64_t p, const PanelTile& tile) const {
    queries_.multiply(pages_.keys, first_page_ + p, tile);
  }
  void value_gradients(int64_t p, const PanelTile& tile) const {
    d_out_.multiply(pages_.values, first_page_ + p, tile);
  }
  void add_dv(int64_t p, const PanelTile& composed);
  void add_dk_and_dq(int64_t p, const PanelTile& gradient);
  void end() { dq_.finish(); }
  const float* dq(int64_t m, int64_t r) const { return dq_.row(m, r); }

 private:
  // A tile's squares as B tiles of pairs of rows, [M][rows/32][2 halves].
  void pack_pairs(const PanelTile& tile);
  const BFloat16* pairs(int64_t m) const { return pairs_.data() + m * pair_numel_; }

  const AttentionInputs& in_;
  const TileSizes& sizes_;
  const Pages& pages_;
  Accumulators& sums_;
  int64_t lane_;
  Bf16UnitScope scope_{bf16_unit()};
  TileRows queries_, d_out_;
  TileColumns query_columns_, d_out_columns_;
  TileRowSums dq_;
  Buffer<BFloat16> pairs_;
  int64_t pair_numel_ = 0;
  Panels<float> blocks_;
  const Block* block_ = nullptr;
  int64_t group_ = 0;
  int64_t first_page_ = 0;
};

}  // namespace dcformer::attention
