#include "dcformer/ops/composed_attention_operands.h"

#include <algorithm>
#include <type_traits>

namespace dcformer::attention {

template <typename To>
void pack_rows(ConstHeads heads, const Block& block, const TileSizes& sizes, int64_t group,
               int64_t room, int64_t width, To* packed) {
  visit_dtype(heads.dtype, "composed_attention", [&](auto type) {
    const auto view = heads.typed<decltype(type)>();
    for (int64_t m = 0; m < sizes.mix.heads; ++m) {
      To* to = packed + m * room * width;
      for (int64_t row = 0; row < block.rows; ++row, to += width) {
        const auto* from = view.at(block.query(row), group * sizes.mix.heads + m);
        if constexpr (std::is_same_v<To, decltype(type)>) {
          std::copy_n(from, sizes.head_dim, to);
        } else {
          for (int64_t d = 0; d < sizes.head_dim; ++d) to[d] = To(static_cast<float>(from[d]));
        }
        std::fill(to + sizes.head_dim, to + width, To(0.0f));
      }
      std::fill_n(to, (room - block.rows) * width, To(0.0f));
    }
  });
}
template void pack_rows(ConstHeads, const Block&, const TileSizes&, int64_t, int64_t, int64_t,
                        float*);
template void pack_rows(ConstHeads, const Block&, const TileSizes&, int64_t, int64_t, int64_t,
                        BFloat16*);

TileRowSums::TileRowSums(Context& context, const TileSizes& sizes, const BlockLimits& limits,
                         const TilePages& pages)
    : sizes_(sizes),
      pages_(pages),
      weights_(context, kPanelsAtOnce * sizes.mix.heads * whole_bands(limits.rows) * kPanel),
      sums_(context, sizes.mix.heads * whole_bands(limits.rows) * sizes.padded_dim) {}

void TileRowSums::begin(const Block& block, int64_t group, int64_t first_page) {
  group_ = group;
  n_band_ = whole_bands(block.rows) / kSide;
  first_page_ = first_page;
  n_waiting_ = 0;
  std::fill_n(sums_.data(), sizes_.mix.heads * n_band_ * kSide * sizes_.padded_dim, 0.0f);
}

void TileRowSums::add(int64_t p, const PanelTile& a) {
  if (n_waiting_ == kPanelsAtOnce) multiply_waiting();
  if (n_waiting_ == 0) waiting_begin_ = p;
  for (int64_t b = 0; b < n_band_; ++b) {
    const Band band = a.band(b);
    for (int64_t m = 0; m < sizes_.mix.heads; ++m)
      square_rows_to_tile(band.square(m, 0), band.square(m, 1), band.rows,
                          weights(n_waiting_, m, b));
  }
  ++n_waiting_;
}

void TileRowSums::multiply_waiting() {
  if (n_waiting_ == 0) return;
  const int64_t heads = sizes_.mix.heads;
  constexpr int64_t kTile = kSide * kPanel;
  for (int64_t m = 0; m < heads; ++m)
    tile_product(bf16_unit(),
                 {.a = weights(0, m, 0),
                  .a_stride = kTile,
                  .a_k_stride = heads * n_band_ * kTile,
                  .a_row = kPanel,
                  .b = pages_.at(first_page_ + waiting_begin_, sizes_.kv_head(group_, m)),
                  .b_stride = kTile,
                  .b_k_stride = pages_.page_numel(),
                  .c = sums_.data() + m * n_band_ * kSide * sizes_.padded_dim,
                  .c_a_stride = kSide * sizes_.padded_dim,
                  .c_b_stride = kSide,
                  .c_row = sizes_.padded_dim,
                  .n_a = n_band_,
                  .n_b = sizes_.padded_dim / kSide,
                  .n_k = n_waiting_,
                  .add = true});
  n_waiting_ = 0;
}

TileRows::TileRows(Context& context, const TileSizes& sizes, const BlockLimits& limits)
    : sizes_(sizes),
      depth_((sizes.head_dim + 31) / 32 * 32),
      rows_(context, sizes.mix.heads * whole_bands(limits.rows) * depth_) {}

void TileRows::begin(ConstHeads heads, const Block& block, int64_t group) {
  group_ = group;
  n_band_ = whole_bands(block.rows) / kSide;
  pack_rows(heads, block, sizes_, group, n_band_ * kSide, depth_, rows_.data());
}

void TileRows::multiply(const TilePages& pages, int64_t page, const PanelTile& tile) const {
  for (int64_t m = 0; m < sizes_.mix.heads; ++m) {
    const HeadSquares squares = squares_of(tile, m);
    tile_product(bf16_unit(), {.a = rows_.data() + m * n_band_ * kSide * depth_,
                               .a_stride = kSide * depth_,
                               .a_k_stride = 32,
                               .a_row = depth_,
                               .b = pages.at(page, sizes_.kv_head(group_, m)),
                               .b_stride = kSide * kPanel,
                               .b_k_stride = 2 * kSide * kPanel,
                               .c = squares.data,
                               .c_a_stride = squares.band,
                               .c_b_stride = squares.half,
                               .c_row = kSide,
                               .n_a = n_band_,
                               .n_b = 2,
                               .n_k = depth_ / 32,
                               .add = false});
  }
}

TileForwardPages::TileForwardPages(Context& context, const AttentionInputs& in)
    : index(in.sequences),
      keys(context, in, index, in.k, TilePages::Sum::over_depth),
      values(context, in, index, in.v, TilePages::Sum::over_keys),
      blocks(context, in, ConstHeads(), ConstHeads(), true) {}

TileForward::TileForward(Context& context, const AttentionInputs& inputs, const TileSizes& sizes,
                         const BlockLimits& limits, const TileForwardPages& pages)
    : in_(inputs),
      pages_(pages),
      queries_(context, sizes, limits),
      output_(context, sizes, limits, pages.values) {}

void TileForward::begin(const Block& block, int64_t group) {
  block_ = &block;
  group_ = group;
  first_page_ = pages_.index.first(block.sequence_index) + block.first_panel();
  blocks_ = {&pages_.blocks.layout(),
             pages_.blocks.pages()[static_cast<size_t>(block.sequence_index)]};
  queries_.begin(in_.q, block, group);
}

}  // namespace dcformer::attention
