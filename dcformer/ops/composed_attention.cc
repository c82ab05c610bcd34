#include "dcformer/ops/composed_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/composed_attention_tiles.h"

namespace dcformer {
namespace {

using namespace attention;

template <typename From, typename To>
void write_token(const PageLayout& layout, To* page, int64_t slot, const HeadView<const From>& k,
                 const HeadView<const From>& v, const Composition& c, int64_t token) {
  for (int64_t h = 0; h < layout.n_kv_head; ++h) {
    const From* key = k.at(token, h);
    To* keys = page + h * layout.head_dim * kPanel + slot;
    for (int64_t d = 0; d < layout.head_dim; ++d) keys[d * kPanel] = To(static_cast<float>(key[d]));
    const From* value = v.at(token, h);
    To* values = page + layout.value_offset() + (h * kPanel + slot) * layout.value_width();
    for (int64_t d = 0; d < layout.head_dim; ++d) values[d] = To(static_cast<float>(value[d]));
    for (int64_t d = layout.head_dim; d < layout.value_width(); ++d) values[d] = To(0.0f);
  }
  if (layout.block == 0) return;
  const int64_t gate = layout.block / (2 * c.rank + 1) * 2 * c.rank;
  for (int64_t g = 0; g < layout.n_group; ++g)
    for (int64_t stage = 0; stage < 2; ++stage) {
      const float* from = c.key.at(token, g, stage);
      To* to = page + layout.block_offset() + (g * 2 + stage) * layout.block * kPanel + slot;
      for (int64_t i = 0; i < layout.block; ++i)
        to[i * kPanel] = To(i < gate || c.gates ? from[i] : 0.0f);
    }
}

/// One tile from scores to outputs, in two passes over its panels: post-composition needs the sums
/// of whole rows.
template <typename T>
class ForwardTile {
 public:
  ForwardTile(Context& context, const AttentionInputs& in, const TileSizes& sizes,
              const Block& block, const Panels<T>& panels, int64_t group)
      : in_(in),
        sizes_(sizes),
        block_(block),
        panels_(panels),
        group_(group),
        heads_(sizes.mix.heads),
        n_row_(heads_ * block.rows),
        rows_(context, n_row_ * sizes.padded_dim),
        weights_(context, block.rows * sizes.mix.block()),
        maxima_(context, n_row_),
        sums_(context, n_row_ * 16),
        inverse_sums_(context, n_row_),
        references_(context, block.n_panel() * n_row_),
        memory_(context, tile_numel(heads_, block.rows, block.n_panel())),
        tile_(make_tile(memory_.data(), heads_, block.rows)) {}

  void run(Heads o, float* statistics) {
    exponentials();
    softmax_finish(n_row_, maxima_.data(), sums_.data(), inverse_sums_.data());
    if (statistics != nullptr) write_statistics(statistics);
    for (int64_t p = 0; p < block_.n_panel(); ++p) {
      float* scale = references_.data() + p * n_row_;
      softmax_scales(n_row_, scale, maxima_.data(), inverse_sums_.data(), scale);
    }
    outputs();
    write(o);
  }

 private:
  // A = q·kᵀ, A' = pre(A), then e^(A' - m) with the row's maximum m up to each panel, which
  // `references_` keeps.
  void exponentials() {
    pack_rows(in_.q, block_, sizes_, group_, sizes_.scale, rows_.data());
    std::fill_n(maxima_.data(), n_row_, -std::numeric_limits<float>::infinity());
    std::fill_n(sums_.data(), n_row_ * 16, 0.0f);
    const MixWeights pre = weights(0);
    for (int64_t p = 0; p < block_.n_panel(); ++p) {
      const PanelTile tile = tile_.panel(p);
      compute_scores(block_, p, sizes_, panels_, group_, rows_.data(), tile);
      if (stage_mixes(in_.composition, 0))
        compose_panel<T>(tile, tile, block_.rows, sizes_.mix, pre, key_block(p, 0), nullptr);
      fill_hidden(in_, block_, p, tile, heads_, -std::numeric_limits<float>::infinity());
      for (int64_t m = 0; m < heads_; ++m)
        softmax_panel(tile.at(m, 0), block_.rows, maxima_.data() + m * block_.rows,
                      sums_.data() + m * block_.rows * 16,
                      references_.data() + p * n_row_ + m * block_.rows);
    }
  }

  // P by the scales, A'' = post(P), o = A''·v.
  void outputs() {
    std::fill_n(rows_.data(), n_row_ * sizes_.padded_dim, 0.0f);
    const MixWeights post = weights(1);
    const bool mixes = stage_mixes(in_.composition, 1);
    for (int64_t p = 0; p < block_.n_panel(); ++p) {
      const PanelTile tile = tile_.panel(p);
      compose_panel<T>(tile, tile, block_.rows, sizes_.mix, post, mixes ? key_block(p, 1) : nullptr,
                       references_.data() + p * n_row_);
      fill_hidden(in_, block_, p, tile, heads_, 0.0f);
      if (in_.q.dtype == DType::bf16)
        for (int64_t m = 0; m < heads_; ++m) round_values(tile.at(m, 0), block_.rows * kPanel);
      multiply_values(block_, p, sizes_, panels_, group_, tile, rows_.data());
    }
  }

  const T* key_block(int64_t panel, int64_t stage) const {
    return panels_.block(block_.first_panel() + panel, group_, stage);
  }

  MixWeights weights(int64_t stage) const {
    return stage_weights(in_.composition, block_, sizes_, group_, stage, weights_.data());
  }

  void write_statistics(float* statistics) const {
    for (int64_t m = 0; m < heads_; ++m)
      for (int64_t row = 0; row < block_.rows; ++row) {
        float* entry = statistics + (block_.query(row) * sizes_.n_head + group_ * heads_ + m) * 2;
        entry[0] = maxima_.data()[m * block_.rows + row];
        entry[1] = inverse_sums_.data()[m * block_.rows + row];
      }
  }

  void write(Heads o) const {
    visit_dtype(o.dtype, "composed_attention", [&](auto type) {
      using O = decltype(type);
      const auto out = o.typed<O>();
      for (int64_t m = 0; m < heads_; ++m)
        for (int64_t row = 0; row < block_.rows; ++row)
          for (int64_t d = 0; d < sizes_.head_dim; ++d)
            out.at(block_.query(row), group_ * heads_ + m)[d] =
                static_cast<O>(rows_.data()[(m * block_.rows + row) * sizes_.padded_dim + d]);
    });
  }

  const AttentionInputs& in_;
  const TileSizes& sizes_;
  const Block& block_;
  const Panels<T>& panels_;
  int64_t group_, heads_, n_row_;
  Floats rows_, weights_, maxima_, sums_, inverse_sums_, references_, memory_;
  Tile tile_;
};

template <typename T>
void forward(Context& context, const AttentionInputs& in, const TileSizes& sizes,
             const PageLayout& layout, std::span<const std::span<void* const>> pages, Heads o,
             float* statistics) {
  std::vector<Block> blocks;
  for (size_t s = 0; s < in.sequences.size(); ++s)
    for (const Block& block : blocks_of(in, static_cast<int64_t>(s))) blocks.push_back(block);
  // Longest first, so that no thread is left with a long one at the end.
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return a.rows * a.n_panel() > b.rows * b.n_panel();
  });
  // Group by group: one group's keys and values stay in the cache for all its blocks.
  const auto n_block = static_cast<int64_t>(blocks.size());
  parallel_for(context, n_block * sizes.n_group, [&](int64_t i) {
    const Block& block = blocks[static_cast<size_t>(i % n_block)];
    const Panels<T> panels{&layout, pages[static_cast<size_t>(block.sequence_index)]};
    ForwardTile<T>(context, in, sizes, block, panels, i / n_block).run(o, statistics);
  });
}

}  // namespace

void write_pages(const PageLayout& layout, std::span<void* const> pages, int64_t position,
                 ConstHeads k, ConstHeads v, const Composition& composition, int64_t begin,
                 int64_t count) {
  visit_dtype(k.dtype, "write_pages", [&](auto from_type) {
    using From = decltype(from_type);
    const auto keys = k.typed<From>();
    const auto values = v.typed<From>();
    visit_dtype(layout.dtype, "write_pages", [&](auto to_type) {
      using To = decltype(to_type);
      for (int64_t i = 0; i < count; ++i) {
        To* page = static_cast<To*>(pages[static_cast<size_t>((position + i) / kPanel)]);
        write_token<From, To>(layout, page, (position + i) % kPanel, keys, values, composition,
                              begin + i);
      }
    });
  });
}

void composed_attention(Context& context, const AttentionInputs& inputs, Heads o,
                        float* statistics) {
  check_inputs(inputs, false);
  check_output(inputs, o, false);
  const PackedPages packed(context, inputs, inputs.k, inputs.v, true);
  forward<float>(context, inputs, TileSizes(inputs), packed.layout(), packed.pages(), o,
                 statistics);
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
  visit_dtype(layout.dtype, "composed_attention_paged", [&](auto type) {
    forward<decltype(type)>(context, inputs, sizes, layout, pages, o, nullptr);
  });
}

}  // namespace dcformer
