#include "dcformer/ops/composed_attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/composed_attention_operands.h"

namespace dcformer {
namespace {

using namespace attention;

struct ForwardCall {
  Context& context;
  const AttentionInputs& in;
  const TileSizes& sizes;
  Heads o;
  float* statistics;
};

/// Tiles from scores to outputs, one after the other in the same memory, each in two passes over
/// its panels: post-composition needs the sums of whole rows. `Products` is FloatForward or
/// TileForward.
template <typename Products>
class ForwardTile {
 public:
  /// `keys`: the last arguments of the constructor of Products.
  template <typename... Keys>
  ForwardTile(const ForwardCall& call, const BlockLimits& limits, const Keys&... keys)
      : call_(call),
        in_(call.in),
        sizes_(call.sizes),
        heads_(sizes_.mix.heads),
        products_(call.context, in_, sizes_, limits, keys...),
        weights_(call.context, limits.rows * sizes_.mix.block()),
        maxima_(call.context, heads_ * whole_bands(limits.rows)),
        sums_(call.context, heads_ * whole_bands(limits.rows)),
        inverse_sums_(call.context, heads_ * whole_bands(limits.rows)),
        references_(call.context, limits.n_panel * heads_ * whole_bands(limits.rows)),
        memory_(call.context, Tile::numel(heads_, limits.row_panels)) {
    scales_.fill(sizes_.scale);
  }

  void run(const Block& block, int64_t group) {
    block_ = &block;
    group_ = group;
    row_stride_ = whole_bands(block.rows);
    n_row_ = heads_ * row_stride_;
    tile_ =
        Tile(memory_.data(), heads_, block.rows, square_room(block.rows, Products::kWholeBands));
    products_.begin(block, group);
    exponentials();
    softmax_finish(n_row_, maxima_.data(), sums_.data(), inverse_sums_.data());
    if (call_.statistics != nullptr) write_statistics();
    for (int64_t p = 0; p < block.n_panel(); ++p) {
      float* scale = references_.data() + p * n_row_;
      softmax_scales(n_row_, scale, maxima_.data(), inverse_sums_.data(), scale);
    }
    outputs();
    write();
  }

 private:
  using Key = typename Products::Key;

  // A = q·kᵀ, A' = pre(A/√D), then e^(A' - m) with the row's maximum m up to each panel, which
  // `references_` keeps.
  void exponentials() {
    std::fill_n(maxima_.data(), n_row_, -std::numeric_limits<float>::infinity());
    std::fill_n(sums_.data(), n_row_, 0.0f);
    const bool mixes = stage_mixes(in_.composition, 0);
    const MixWeights pre = weights(0);
    for (int64_t p = 0; p < block_->n_panel(); ++p) {
      const PanelTile tile = tile_.panel(p);
      const Key* key_block = mixes ? products_.key_block(p, 0) : nullptr;
      products_.scores(p, tile);
      for (int64_t b = 0; b < tile.n_band(); ++b) {
        const Band band = tile.band(b);
        if (mixes)
          compose_band<Key>(band, band, sizes_.mix, band_weights(pre, sizes_.mix, b), key_block,
                            {scales_.data(), 0});
        fill_hidden(in_, *block_, p, b, band, -std::numeric_limits<float>::infinity());
        for (int64_t m = 0; m < heads_; ++m) {
          const int64_t place = m * row_stride_ + b * kSide;
          softmax_band(band, m, mixes ? 1.0f : sizes_.scale, maxima_.data() + place,
                       sums_.data() + place, references_.data() + p * n_row_ + place);
        }
      }
    }
  }

  // P by the scales, A'' = post(P), o = A''·v.
  void outputs() {
    products_.begin_output();
    const bool mixes = stage_mixes(in_.composition, 1);
    const MixWeights post = weights(1);
    for (int64_t p = 0; p < block_->n_panel(); ++p) {
      const PanelTile tile = tile_.panel(p);
      const Key* key_block = mixes ? products_.key_block(p, 1) : nullptr;
      for (int64_t b = 0; b < tile.n_band(); ++b) {
        const Band band = tile.band(b);
        const RowScales scales{references_.data() + p * n_row_ + b * kSide, row_stride_};
        compose_band<Key>(band, band, sizes_.mix, band_weights(post, sizes_.mix, b), key_block,
                          scales);
        fill_hidden(in_, *block_, p, b, band, 0.0f);
      }
      products_.add_values(p, tile);
    }
    products_.end_output();
  }

  MixWeights weights(int64_t stage) const {
    return stage_weights(in_.composition, *block_, sizes_, group_, stage, weights_.data());
  }

  void write_statistics() const {
    for (int64_t m = 0; m < heads_; ++m)
      for (int64_t row = 0; row < block_->rows; ++row) {
        float* entry =
            call_.statistics + (block_->query(row) * sizes_.n_head + group_ * heads_ + m) * 2;
        entry[0] = maxima_.data()[m * row_stride_ + row];
        entry[1] = inverse_sums_.data()[m * row_stride_ + row];
      }
  }

  void write() const {
    visit_dtype(call_.o.dtype, "composed_attention", [&](auto type) {
      using O = decltype(type);
      const auto out = call_.o.typed<O>();
      for (int64_t m = 0; m < heads_; ++m)
        for (int64_t row = 0; row < block_->rows; ++row) {
          const float* from = products_.output(m, row);
          O* to = out.at(block_->query(row), group_ * heads_ + m);
          for (int64_t d = 0; d < sizes_.head_dim; ++d) to[d] = static_cast<O>(from[d]);
        }
    });
  }

  const ForwardCall& call_;
  const AttentionInputs& in_;
  const TileSizes& sizes_;
  int64_t heads_;
  Products products_;
  // Row statistics are [M][rows in whole bands].
  Buffer<float> weights_, maxima_, sums_, inverse_sums_, references_, memory_;
  // What scores are multiplied with, for each row of a band.
  std::array<float, kSide> scales_;
  Tile tile_;
  const Block* block_ = nullptr;
  int64_t group_ = 0;
  int64_t row_stride_ = 0;
  int64_t n_row_ = 0;
};

template <typename Products, typename... Keys>
void forward(const ForwardCall& call, const Keys&... keys) {
  std::vector<Block> blocks;
  for (size_t s = 0; s < call.in.sequences.size(); ++s)
    for (const Block& block : blocks_of(call.in, static_cast<int64_t>(s))) blocks.push_back(block);
  const BlockLimits limits(blocks, Products::kWholeBands);
  // Longest first, so that no thread is left with a long one at the end.
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return a.rows * a.n_panel() > b.rows * b.n_panel();
  });
  // Group by group: one group's keys and values stay in the cache for all its blocks.
  const auto n_block = static_cast<int64_t>(blocks.size());
  const int64_t n_task = n_block * call.sizes.n_group;
  std::atomic<int64_t> next = 0;
  // One tile a thread: fresh memory for each task would cost more than the arithmetic in it.
  parallel_for(call.context, std::min<int64_t>(call.context.n_thread(), n_task), [&](int64_t) {
    ForwardTile<Products> tile(call, limits, keys...);
    for (int64_t i = next++; i < n_task; i = next++)
      tile.run(blocks[static_cast<size_t>(i % n_block)], i / n_block);
  });
}

}  // namespace

void composed_attention(Context& context, const AttentionInputs& inputs, Heads o,
                        float* statistics) {
  check_inputs(inputs, false);
  check_output(inputs, o, false);
  const TileSizes sizes(inputs);
  const ForwardCall call{context, inputs, sizes, o, statistics};
  if (inputs.q.dtype == DType::bf16 && bf16_unit() != Bf16Unit::none) {
    const TileForwardPages pages(context, inputs);
    forward<TileForward>(call, pages);
    return;
  }
  const PackedPages packed(context, inputs, inputs.k, inputs.v, true);
  forward<FloatForward<float>>(call, packed.layout(), packed.pages());
}

void composed_attention_paged(Context& context, const AttentionInputs& inputs,
                              const PageLayout& layout,
                              std::span<const std::span<void* const>> pages, Heads o) {
  check_inputs(inputs, true);
  check_output(inputs, o, true);
  require(pages.size() == inputs.sequences.size(),
          "composed_attention: expected page tables of {} sequences, got {}",
          inputs.sequences.size(), pages.size());
  require(layout.head_dim == inputs.q.head_dim && layout.n_kv_head > 0 &&
              inputs.q.n_head % layout.n_kv_head == 0,
          "composed_attention: pages hold {} heads of {}, expected a divisor of {} heads of {}",
          layout.n_kv_head, layout.head_dim, inputs.q.n_head, inputs.q.head_dim);
  TileSizes sizes(inputs);
  sizes.n_kv_head = layout.n_kv_head;
  const ForwardCall call{context, inputs, sizes, o, nullptr};
  visit_dtype(layout.dtype, "composed_attention_paged",
              [&](auto type) { forward<FloatForward<decltype(type)>>(call, layout, pages); });
}

}  // namespace dcformer
