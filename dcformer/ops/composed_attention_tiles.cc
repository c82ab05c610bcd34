#include "dcformer/ops/composed_attention_tiles.h"

#include <algorithm>
#include <cmath>

#include "dcformer/base/check.h"

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

// Sets the entries [begin, end) of a row's panel, for all heads.
void fill_row(const Band& band, int64_t row, int64_t begin, int64_t end, float value) {
  if (begin >= end) return;
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t first = std::max<int64_t>(begin - half * kSide, 0);
    const int64_t last = std::min<int64_t>(end - half * kSide, kSide);
    if (first >= last) continue;
    for (int64_t m = 0; m < band.heads; ++m) {
      float* entries = band.square(m, half) + row * kSide;
      std::fill(entries + first, entries + last, value);
    }
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

BlockLimits::BlockLimits(std::span<const Block> blocks, bool whole) {
  for (const Block& block : blocks) {
    rows = std::max(rows, block.rows);
    n_panel = std::max(n_panel, block.n_panel());
    row_panels =
        std::max(row_panels, (whole || block.rows > kSide ? whole_bands(block.rows) : block.rows) *
                                 block.n_panel());
  }
}

void fill_hidden(const AttentionInputs& in, const Block& block, int64_t panel, int64_t b,
                 const Band& band, float value) {
  const int64_t base = (block.first_panel() + panel) * kPanel;
  // The last row's keys begin last, the first row's end first.
  const int64_t first = block.first_row + b * kSide;
  if (in.mask.query_segments == nullptr &&
      visible_keys(in.mask, *block.sequence, first).end >= base + kPanel &&
      visible_keys(in.mask, *block.sequence, first + band.rows - 1).begin <= base)
    return;
  for (int64_t row = 0; row < band.rows; ++row) {
    const int64_t number = b * kSide + row;
    const KeyRange seen = visible_keys(in.mask, *block.sequence, block.first_row + number);
    const int64_t begin = std::clamp<int64_t>(seen.begin - base, 0, kPanel);
    const int64_t end = std::clamp<int64_t>(seen.end - base, begin, kPanel);
    fill_row(band, row, 0, begin, value);
    fill_row(band, row, end, kPanel, value);
    if (in.mask.query_segments == nullptr) continue;
    const int32_t own = in.mask.query_segments[block.query(number)];
    for (int64_t j = begin; j < end; ++j)
      if (in.mask.key_segments[block.sequence->key_begin + base + j] != own)
        fill_row(band, row, j, j + 1, value);
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

MixWeights band_weights(const MixWeights& weights, const MixSizes& sizes, int64_t band) {
  MixWeights own = weights;
  if (own.query != nullptr) own.query += band * kSide * sizes.block();
  return own;
}

}  // namespace dcformer::attention
