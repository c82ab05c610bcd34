#include "dcformer/ops/composed_attention_tiles.h"

#include <algorithm>
#include <cmath>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"

namespace dcformer::attention {
namespace {

int64_t block_height(const AttentionInputs& inputs, const AttentionSequence& s) {
  const int64_t heads = TileSizes(inputs).mix.heads;
  int64_t columns = inputs.mask.causal ? std::min(s.n_key, s.start + s.n_query) : s.n_key;
  if (inputs.mask.window) columns = std::min(columns, *inputs.mask.window + 2 * kPanel);
  const int64_t bytes_per_row = heads * std::max<int64_t>(columns, kPanel) * 4;
  if (heads == 1) return std::clamp<int64_t>((1 << 18) / bytes_per_row / 16 * 16, 16, 64);
  // Every block of queries reads all keys and values, so that higher blocks read less; the tile
  // itself is written and read once a pass.
  if (bytes_per_row * 64 <= 64 << 20) return 64;
  return bytes_per_row * 32 <= 64 << 20 ? 32 : 16;
}

void fill_row(const PanelTile& tile, int64_t heads, int64_t row, int64_t begin, int64_t end,
              float value) {
  if (begin >= end) return;
  for (int64_t m = 0; m < heads; ++m)
    std::fill(tile.at(m, row) + begin, tile.at(m, row) + end, value);
}

template <typename T>
void pack_rows_typed(HeadView<const T> heads, const Block& block, const TileSizes& sizes,
                     int64_t group, float factor, float* packed) {
  for (int64_t m = 0; m < sizes.mix.heads; ++m)
    for (int64_t row = 0; row < block.rows; ++row) {
      const T* from = heads.at(block.query(row), group * sizes.mix.heads + m);
      float* to = packed + (m * block.rows + row) * sizes.padded_dim;
      for (int64_t d = 0; d < sizes.head_dim; ++d) to[d] = static_cast<float>(from[d]) * factor;
      std::fill(to + sizes.head_dim, to + sizes.padded_dim, 0.0f);
    }
}

}  // namespace

KeyRange visible_keys(const AttentionMask& mask, const AttentionSequence& s, int64_t row) {
  const int64_t position = s.start + row;
  KeyRange range{0, s.n_key};
  if (mask.causal) range.end = std::min(s.n_key, position + 1);
  if (mask.window) range.begin = std::max<int64_t>(0, position - *mask.window + 1);
  range.begin = std::min(range.begin, range.end);
  return range;
}

std::vector<Block> blocks_of(const AttentionInputs& inputs, int64_t index) {
  const AttentionSequence& s = inputs.sequences[static_cast<size_t>(index)];
  const int64_t height = block_height(inputs, s);
  std::vector<Block> blocks;
  for (int64_t row = 0; row < s.n_query; row += height) {
    Block block{&s, index, row, std::min(height, s.n_query - row), 0, 0};
    block.key_begin = visible_keys(inputs.mask, s, row).begin;
    block.key_end = visible_keys(inputs.mask, s, row + block.rows - 1).end;
    blocks.push_back(block);
  }
  return blocks;
}

void fill_hidden(const AttentionInputs& in, const Block& block, int64_t panel,
                 const PanelTile& tile, int64_t heads, float value) {
  const int64_t base = (block.first_panel() + panel) * kPanel;
  for (int64_t row = 0; row < block.rows; ++row) {
    const KeyRange seen = visible_keys(in.mask, *block.sequence, block.first_row + row);
    const int64_t begin = std::clamp<int64_t>(seen.begin - base, 0, kPanel);
    const int64_t end = std::clamp<int64_t>(seen.end - base, begin, kPanel);
    fill_row(tile, heads, row, 0, begin, value);
    fill_row(tile, heads, row, end, kPanel, value);
    if (in.mask.query_segments == nullptr) continue;
    const int32_t own = in.mask.query_segments[block.query(row)];
    for (int64_t j = begin; j < end; ++j)
      if (in.mask.key_segments[block.sequence->key_begin + base + j] != own)
        fill_row(tile, heads, row, j, j + 1, value);
  }
}

PageLayout page_layout(const AttentionInputs& in, DType dtype, int64_t n_kv_head, int64_t head_dim,
                       bool with_blocks) {
  const Composition& c = in.composition;
  const bool key_side = with_blocks && c.key.data != nullptr;
  return {dtype, n_kv_head, head_dim, c.n_group,
          key_side ? (2 * c.rank + 1) * (in.q.n_head / c.n_group) : 0};
}

namespace {

// Elements from a page to the next. A head's panels lie one stride apart: where that is a multiple
// of the size of a cache way, all of them would compete for the same few lines.
int64_t page_stride(const PageLayout& layout) {
  constexpr int64_t kWay = 32768;
  if (layout.numel() < 4 * kWay) return layout.numel();
  const int64_t panel = layout.head_dim * kPanel;
  return layout.numel() + ((panel - layout.numel()) % kWay + kWay) % kWay;
}

}  // namespace

PackedPages::PackedPages(Context& context, const AttentionInputs& in, ConstHeads k, ConstHeads v,
                         bool with_blocks)
    : layout_(page_layout(in, DType::f32, k.n_head, k.head_dim, with_blocks)) {
  std::vector<int64_t> first;
  int64_t n_page = 0;
  for (const AttentionSequence& s : in.sequences) {
    first.push_back(n_page);
    n_page += (s.n_key + kPanel - 1) / kPanel;
  }
  const int64_t stride = page_stride(layout_);
  memory_ = Tensor::empty(context, DType::f32, {std::max<int64_t>(n_page, 1), stride});
  float* data = memory_.data<float>();
  for (int64_t p = 0; p < n_page; ++p) pages_.push_back(data + p * stride);
  for (size_t s = 0; s < first.size(); ++s) {
    const int64_t count = (in.sequences[s].n_key + kPanel - 1) / kPanel;
    const std::span<void* const> pages{pages_.data() + first[s], static_cast<size_t>(count)};
    spans_.push_back(pages);
    parallel_for(context, count, [&](int64_t p) {
      const AttentionSequence& sequence = in.sequences[s];
      // Unused slots are zero: the backward pass multiplies them with zero gradients.
      if ((p + 1) * kPanel > sequence.n_key)
        std::fill_n(static_cast<float*>(pages[static_cast<size_t>(p)]), layout_.numel(), 0.0f);
      write_pages(layout_, pages, p * kPanel, k, v, in.composition, sequence.key_begin + p * kPanel,
                  std::min(kPanel, sequence.n_key - p * kPanel));
    });
  }
}

TileSizes::TileSizes(const AttentionInputs& in)
    : n_head(in.q.n_head),
      n_kv_head(in.k.n_head),
      head_dim(in.q.head_dim),
      padded_dim((in.q.head_dim + 15) / 16 * 16),
      n_group(is_plain(in.composition) ? in.q.n_head : in.composition.n_group),
      mix{in.q.n_head / n_group, in.composition.rank},
      scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(in.q.head_dim)))) {}

Tile make_tile(float* memory, int64_t heads, int64_t rows) {
  const int64_t head_stride = rows * kPanel + 16;
  return {memory, head_stride, heads * head_stride};
}

int64_t tile_numel(int64_t heads, int64_t rows, int64_t n_panel) {
  return n_panel * make_tile(nullptr, heads, rows).panel_stride;
}

void pack_rows(ConstHeads heads, const Block& block, const TileSizes& sizes, int64_t group,
               float factor, float* packed) {
  visit_dtype(heads.dtype, "composed_attention", [&](auto type) {
    pack_rows_typed(heads.typed<decltype(type)>(), block, sizes, group, factor, packed);
  });
}

bool is_plain(const Composition& c) {
  return c.query.data == nullptr && c.key.data == nullptr && c.pre_base == nullptr &&
         c.post_base == nullptr;
}

bool stage_mixes(const Composition& c, int64_t stage) {
  const bool on = stage == 0 ? c.pre : c.post;
  const float* base = stage == 0 ? c.pre_base : c.post_base;
  return on && (c.query.data != nullptr || c.key.data != nullptr || base != nullptr);
}

MixWeights stage_weights(const Composition& c, const Block& block, const TileSizes& sizes,
                         int64_t group, int64_t stage, float* packed) {
  if (!stage_mixes(c, stage)) return {};
  MixWeights weights;
  const float* base = stage == 0 ? c.pre_base : c.post_base;
  if (base != nullptr) weights.base = base + group * sizes.mix.heads * sizes.mix.heads;
  if (c.query.data == nullptr) return weights;
  const int64_t factors = 2 * sizes.mix.rank * sizes.mix.heads;
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* from = c.query.at(block.query(row), group, stage);
    float* to = packed + row * sizes.mix.block();
    std::copy_n(from, c.gates ? sizes.mix.block() : factors, to);
    if (!c.gates) std::fill(to + factors, to + sizes.mix.block(), 0.0f);
  }
  weights.query = packed;
  return weights;
}

}  // namespace dcformer::attention
