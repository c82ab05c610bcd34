#include "dcformer/ops/composed_attention_gradients.h"

namespace dcformer::attention {
namespace {

constexpr int64_t kTile = kSide * kPanel;

int64_t steps_of_two_bands(int64_t rows) { return (rows + 2 * kSide - 1) / (2 * kSide); }

}  // namespace

FloatBackward::FloatBackward(Context& context, const AttentionInputs& inputs,
                             const TileSizes& sizes, const BlockLimits& limits, const Pages& pages,
                             Accumulators& sums, int64_t lane)
    : in_(inputs),
      sizes_(sizes),
      pages_(pages),
      sums_(sums),
      lane_(lane),
      row_numel_(sizes.mix.heads * limits.rows * sizes.padded_dim),
      rows_(context, 3 * row_numel_) {}

void FloatBackward::begin(const Block& block, int64_t group, HeadView<const float> do_) {
  block_ = &block;
  group_ = group;
  const auto sequence = static_cast<size_t>(block.sequence_index);
  keys_ = {&pages_.keys.layout(), pages_.keys.pages()[sequence]};
  values_ = {&pages_.values.layout(), pages_.values.pages()[sequence]};
  pack_rows(in_.q, block, sizes_, group, block.rows, sizes_.padded_dim, q());
  pack_rows(do_, block, sizes_, group, block.rows, sizes_.padded_dim, d_out());
  if (in_.q.dtype == DType::bf16) round_values(d_out(), row(sizes_.mix.heads));
  std::fill_n(dq(), row(sizes_.mix.heads), 0.0f);
}

void FloatBackward::multiply(int64_t p, const Panels<float>& panels, const float* rows,
                             const PanelTile& tile) const {
  for (int64_t m = 0; m < sizes_.mix.heads; ++m)
    panel_scores<float>(rows + row(m), sizes_.padded_dim, sizes_.head_dim,
                        panels.keys(block_->first_panel() + p, sizes_.kv_head(group_, m)),
                        squares_of(tile, m));
}

KeyRange FloatBackward::keys_of(int64_t p) const {
  const int64_t first = (block_->first_panel() + p) * kPanel;
  return {std::max<int64_t>(0, block_->key_begin - first),
          std::min(kPanel, block_->key_end - first)};
}

void FloatBackward::add_dv(int64_t p, const PanelTile& composed) {
  if (in_.q.dtype == DType::bf16)
    round_values(composed.data, composed.n_band() * composed.band_numel());
  const KeyRange keys = keys_of(p);
  for (int64_t m = 0; m < sizes_.mix.heads; ++m)
    panel_outer(squares_of(composed, m), d_out() + row(m), sizes_.padded_dim, sizes_.padded_dim,
                keys.begin, keys.end,
                sums_.dv(lane_, block_->sequence_index, block_->first_panel() + p,
                         sizes_.kv_head(group_, m)));
}

void FloatBackward::add_dk_and_dq(int64_t p, const PanelTile& gradient) {
  if (in_.q.dtype == DType::bf16)
    round_values(gradient.data, gradient.n_band() * gradient.band_numel());
  const KeyRange keys = keys_of(p);
  const int64_t panel = block_->first_panel() + p;
  for (int64_t m = 0; m < sizes_.mix.heads; ++m) {
    const int64_t kv_head = sizes_.kv_head(group_, m);
    const HeadSquares squares = squares_of(gradient, m);
    panel_outer(squares, q() + row(m), sizes_.padded_dim, sizes_.padded_dim, keys.begin, keys.end,
                sums_.dk(lane_, block_->sequence_index, panel, kv_head));
    panel_values<float>(squares, values_.values(panel, kv_head), sizes_.padded_dim, keys.begin,
                        keys.end, dq() + row(m), sizes_.padded_dim);
  }
}

TileBackwardPages::TileBackwardPages(Context& context, const AttentionInputs& in)
    : index(in.sequences),
      keys(context, in, index, in.k, TilePages::Sum::over_depth),
      keys_by_key(context, in, index, in.k, TilePages::Sum::over_keys),
      values(context, in, index, in.v, TilePages::Sum::over_depth),
      blocks(context, in, ConstHeads(), ConstHeads(), true) {}

TileColumns::TileColumns(Context& context, const TileSizes& sizes, const BlockLimits& limits)
    : sizes_(sizes),
      columns_(context, sizes.mix.heads * sizes.padded_dim * steps_of_two_bands(limits.rows) * 32) {
}

void TileColumns::begin(ConstHeads heads, const Block& block, int64_t group) {
  n_step_ = steps_of_two_bands(block.rows);
  const int64_t head_numel = sizes_.padded_dim * n_step_ * 32;
  std::fill_n(columns_.data(), sizes_.mix.heads * head_numel, BFloat16(0.0f));
  visit_dtype(heads.dtype, "composed_attention", [&](auto type) {
    const auto view = heads.typed<decltype(type)>();
    for (int64_t m = 0; m < sizes_.mix.heads; ++m)
      for (int64_t r = 0; r < block.rows; ++r) {
        const auto* from = view.at(block.query(r), group * sizes_.mix.heads + m);
        BFloat16* to = columns_.data() + m * head_numel + r / 32 * kTile + r % 32;
        for (int64_t d = 0; d < sizes_.head_dim; ++d)
          to[d / kSide * n_step_ * kTile + d % kSide * 32] = BFloat16(static_cast<float>(from[d]));
      }
  });
}

void TileColumns::multiply(int64_t m, const BFloat16* pairs, float* sum) const {
  const int64_t n_tile = sizes_.padded_dim / kSide;
  tile_product(bf16_unit(), {.a = columns_.data() + m * n_tile * n_step_ * kTile,
                             .a_stride = n_step_ * kTile,
                             .a_k_stride = kTile,
                             .a_row = 32,
                             .b = pairs,
                             .b_stride = kTile,
                             .b_k_stride = 2 * kTile,
                             .c = sum,
                             .c_a_stride = 2 * kSide * kSide,
                             .c_b_stride = kSide * kSide,
                             .c_row = kSide,
                             .n_a = n_tile,
                             .n_b = 2,
                             .n_k = n_step_,
                             .add = true});
}

TileBackward::TileBackward(Context& context, const AttentionInputs& inputs, const TileSizes& sizes,
                           const BlockLimits& limits, const Pages& pages, Accumulators& sums,
                           int64_t lane)
    : in_(inputs),
      sizes_(sizes),
      pages_(pages),
      sums_(sums),
      lane_(lane),
      queries_(context, sizes, limits),
      d_out_(context, sizes, limits),
      query_columns_(context, sizes, limits),
      d_out_columns_(context, sizes, limits),
      dq_(context, sizes, limits, pages.keys_by_key),
      pairs_(context, sizes.mix.heads * steps_of_two_bands(limits.rows) * 2 * kTile) {}

void TileBackward::begin(const Block& block, int64_t group, HeadView<const float> do_) {
  block_ = &block;
  group_ = group;
  first_page_ = pages_.index.first(block.sequence_index) + block.first_panel();
  blocks_ = {&pages_.blocks.layout(),
             pages_.blocks.pages()[static_cast<size_t>(block.sequence_index)]};
  pair_numel_ = steps_of_two_bands(block.rows) * 2 * kTile;
  queries_.begin(in_.q, block, group);
  query_columns_.begin(in_.q, block, group);
  d_out_.begin(do_, block, group);
  d_out_columns_.begin(do_, block, group);
  dq_.begin(block, group, first_page_);
}

void TileBackward::pack_pairs(const PanelTile& tile) {
  for (int64_t b = 0; b < 2 * steps_of_two_bands(block_->rows); ++b) {
    // A last odd band is paired with rows of zeros.
    const bool exists = b < tile.n_band();
    const Band band = tile.band(exists ? b : 0);
    for (int64_t m = 0; m < sizes_.mix.heads; ++m)
      for (int64_t half = 0; half < 2; ++half)
        square_pairs_to_tile(
            band.square(m, half), exists ? band.rows : 0,
            pairs_.data() + m * pair_numel_ + (b / 2 * 2 + half) * kTile + b % 2 * kTile / 2);
  }
}

void TileBackward::add_dv(int64_t p, const PanelTile& composed) {
  pack_pairs(composed);
  for (int64_t m = 0; m < sizes_.mix.heads; ++m)
    d_out_columns_.multiply(m, pairs(m),
                            sums_.dv(lane_, block_->sequence_index, block_->first_panel() + p,
                                     sizes_.kv_head(group_, m)));
}

void TileBackward::add_dk_and_dq(int64_t p, const PanelTile& gradient) {
  pack_pairs(gradient);
  for (int64_t m = 0; m < sizes_.mix.heads; ++m)
    query_columns_.multiply(m, pairs(m),
                            sums_.dk(lane_, block_->sequence_index, block_->first_panel() + p,
                                     sizes_.kv_head(group_, m)));
  dq_.add(p, gradient);
}

}  // namespace dcformer::attention
