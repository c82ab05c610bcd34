#include "dcformer/ops/composed_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

/// One tile from scores to outputs.
template <typename T>
void forward_tile(Context& context, const AttentionInputs& in, const TileSizes& sizes,
                  const Block& block, const Panels<T>& panels, int64_t group, Heads o,
                  float* statistics) {
  const int64_t heads = sizes.mix.heads;
  const Floats rows(context, heads * block.rows * sizes.padded_dim);
  const Floats weights(context, 2 * block.rows * sizes.mix.block());
  const Floats inverse_sums(context, heads * block.rows);
  const Floats memory(context, tile_numel(heads, block.rows, block.columns()));
  const Tile tile = make_tile(memory.data(), block.rows, block.columns());
  pack_rows(in.q, block, sizes, group, sizes.scale, rows.data());
  compute_scores(block, sizes, panels, group, rows.data(), tile);
  const MixWeights pre = stage_weights(in.composition, block, sizes, group, 0, weights.data());
  if (stage_mixes(in.composition, 0))
    compose_tile(block, sizes, panels, group, 0, pre, true, tile, tile, nullptr);
  fill_hidden(in, block, tile, heads, -std::numeric_limits<float>::infinity());
  for (int64_t m = 0; m < heads; ++m)
    for (int64_t row = 0; row < block.rows; ++row) {
      float maximum = 0;
      float* inverse = inverse_sums.data() + m * block.rows + row;
      softmax_row(tile.at(m, row), block.columns(), &maximum, inverse);
      if (statistics == nullptr) continue;
      float* entry = statistics + (block.query(row) * sizes.n_head + group * heads + m) * 2;
      entry[0] = maximum;
      entry[1] = *inverse;
    }
  const MixWeights post = stage_weights(in.composition, block, sizes, group, 1,
                                        weights.data() + block.rows * sizes.mix.block());
  compose_tile(block, sizes, panels, group, 1, post, stage_mixes(in.composition, 1), tile, tile,
               inverse_sums.data());
  fill_hidden(in, block, tile, heads, 0.0f);
  if (in.q.dtype == DType::bf16)
    for (int64_t m = 0; m < heads; ++m)
      for (int64_t row = 0; row < block.rows; ++row) round_row(tile.at(m, row), block.columns());
  std::fill_n(rows.data(), heads * block.rows * sizes.padded_dim, 0.0f);
  multiply_values(block, sizes, panels, group, tile, rows.data());
  visit_dtype(o.dtype, "composed_attention", [&](auto type) {
    using O = decltype(type);
    const auto out = o.typed<O>();
    for (int64_t m = 0; m < heads; ++m)
      for (int64_t row = 0; row < block.rows; ++row)
        for (int64_t d = 0; d < sizes.head_dim; ++d)
          out.at(block.query(row), group * heads + m)[d] =
              static_cast<O>(rows.data()[(m * block.rows + row) * sizes.padded_dim + d]);
  });
}

template <typename T>
void forward(Context& context, const AttentionInputs& in, const TileSizes& sizes,
             const PageLayout& layout, std::span<const std::span<void* const>> pages, Heads o,
             float* statistics) {
  std::vector<Block> blocks;
  for (size_t s = 0; s < in.sequences.size(); ++s)
    for (const Block& block : blocks_of(in, static_cast<int64_t>(s))) blocks.push_back(block);
  // Longest first, so that no thread is left with a long one at the end.
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return a.rows * a.columns() > b.rows * b.columns();
  });
  parallel_for(context, static_cast<int64_t>(blocks.size()) * sizes.n_group, [&](int64_t i) {
    const Block& block = blocks[static_cast<size_t>(i / sizes.n_group)];
    const Panels<T> panels{&layout, pages[static_cast<size_t>(block.sequence_index)]};
    forward_tile(context, in, sizes, block, panels, i % sizes.n_group, o, statistics);
  });
}

void check_output(const AttentionInputs& in, Heads o) {
  require(o.n_token == in.q.n_token && o.n_head == in.q.n_head && o.head_dim == in.q.head_dim,
          "composed_attention: expected o [N,H,D] = [{},{},{}], got [{},{},{}]", in.q.n_token,
          in.q.n_head, in.q.head_dim, o.n_token, o.n_head, o.head_dim);
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
  check_output(inputs, o);
  const PackedPages packed(context, inputs, inputs.k, inputs.v, true);
  forward<float>(context, inputs, TileSizes(inputs), packed.layout(), packed.pages(), o,
                 statistics);
}

void composed_attention_paged(Context& context, const AttentionInputs& inputs,
                              const PageLayout& layout,
                              std::span<const std::span<void* const>> pages, Heads o) {
  check_inputs(inputs, true);
  check_output(inputs, o);
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
