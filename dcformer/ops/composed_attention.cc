#include "dcformer/ops/composed_attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

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

// Panels of a chunk of keys: chunks stand at absolute positions, each has its own sums, and these
// are added in order, so that threads can share the keys of one block and a row's bits depend
// neither on that nor on the block.
constexpr int64_t kChunkPanels = 16;

/// What a block's tile keeps from its first pass to its second.
class BlockState {
 public:
  /// `n_output`: sums over keys that are kept apart.
  BlockState(const ForwardCall& call, const BlockLimits& limits, int64_t n_output)
      : heads_(call.sizes.mix.heads),
        padded_dim_(call.sizes.padded_dim),
        maxima_(call.context, (n_chunk(limits) + 1) * heads_ * whole_bands(limits.rows)),
        sums_(call.context, (n_chunk(limits) + 1) * heads_ * whole_bands(limits.rows)),
        references_(call.context, limits.n_panel * heads_ * whole_bands(limits.rows)),
        outputs_(call.context, n_output * heads_ * limits.rows * padded_dim_),
        memory_(call.context, Tile::numel(heads_, limits.row_panels)) {}

  void begin(const Block& block, int64_t group, bool whole) {
    block_ = &block;
    group_ = group;
    row_stride_ = whole_bands(block.rows);
    n_row_ = heads_ * row_stride_;
    tile_ = Tile(memory_.data(), heads_, block.rows, square_room(block.rows, whole));
  }
  /// After the first pass: the statistics of whole rows, and of each panel the factors that turn
  /// its exponentials into probabilities.
  void finish() {
    softmax_finish(n_row_, n_chunk(), maxima_.data(), sums_.data(), maximum(), inverse_sum());
    for (int64_t p = 0; p < block_->n_panel(); ++p)
      softmax_scales(n_row_, reference(p), maximum(), inverse_sum(), reference(p));
  }

  const Block& block() const { return *block_; }
  int64_t group() const { return group_; }
  /// Row statistics are [M][rows in whole bands].
  int64_t row_stride() const { return row_stride_; }
  int64_t n_row() const { return n_row_; }
  const Tile& tile() const { return tile_; }

  int64_t n_chunk() const {
    if (block_->n_panel() == 0) return 0;
    return (block_->first_panel() + block_->n_panel() - 1) / kChunkPanels - first_chunk() + 1;
  }
  /// The panels [begin, end) of a chunk, counted from the block's first.
  KeyRange panels(int64_t chunk) const {
    const int64_t begin = (first_chunk() + chunk) * kChunkPanels - block_->first_panel();
    return {std::max<int64_t>(begin, 0), std::min(begin + kChunkPanels, block_->n_panel())};
  }
  float* chunk_maxima(int64_t chunk) const { return maxima_.data() + chunk * n_row_; }
  float* chunk_sums(int64_t chunk) const { return sums_.data() + chunk * n_row_; }
  float* reference(int64_t p) const { return references_.data() + p * n_row_; }
  float* maximum() const { return chunk_maxima(n_chunk()); }
  float* inverse_sum() const { return chunk_sums(n_chunk()); }
  /// [M][rows][D'].
  float* output(int64_t i) const { return outputs_.data() + i * output_numel(); }
  int64_t output_numel() const { return heads_ * block_->rows * padded_dim_; }

 private:
  // The most chunks that so many panels touch.
  static int64_t n_chunk(const BlockLimits& limits) { return limits.n_panel / kChunkPanels + 2; }
  int64_t first_chunk() const { return block_->first_panel() / kChunkPanels; }

  int64_t heads_, padded_dim_;
  Buffer<float> maxima_, sums_, references_, outputs_, memory_;
  Tile tile_;
  const Block* block_ = nullptr;
  int64_t group_ = 0;
  int64_t row_stride_ = 0;
  int64_t n_row_ = 0;
};

/// Computes tiles from scores to outputs, in two passes over their panels: post-composition needs
/// the sums of whole rows. `Products` is FloatForward or TileForward.
template <typename Products>
class ForwardWorker {
 public:
  /// `keys`: the last arguments of the constructor of Products.
  template <typename... Keys>
  ForwardWorker(const ForwardCall& call, const BlockLimits& limits, const Keys&... keys)
      : call_(call),
        in_(call.in),
        sizes_(call.sizes),
        heads_(sizes_.mix.heads),
        products_(call.context, in_, sizes_, limits, keys...),
        weights_(call.context, limits.rows * sizes_.mix.block()),
        panel_memory_(call.context, Tile::numel(heads_, whole_bands(limits.rows))) {
    scales_.fill(sizes_.scale);
  }

  /// Takes up a block, whose state has begun.
  void begin(const BlockState& state) {
    state_ = &state;
    const int64_t rows = state.block().rows;
    panel_ =
        Tile(panel_memory_.data(), heads_, rows, square_room(rows, Products::kWholeBands)).panel(0);
    products_.begin(state.block(), state.group());
  }

  // A = q·kᵀ, A' = pre(A/√D), then e^(A' - m) with the row's maximum m in the chunk up to each
  // panel.
  void exponentials(int64_t chunk) {
    float* maxima = state_->chunk_maxima(chunk);
    float* sums = state_->chunk_sums(chunk);
    std::fill_n(maxima, state_->n_row(), kHidden);
    std::fill_n(sums, state_->n_row(), 0.0f);
    const bool mixes = stage_mixes(in_.composition, 0);
    const MixWeights pre = weights(0);
    const KeyRange panels = state_->panels(chunk);
    for (int64_t p = panels.begin; p < panels.end; ++p) {
      const Key* key_block = mixes ? products_.key_block(p, 0) : nullptr;
      products_.scores(p, panel_);
      for (int64_t b = 0; b < panel_.n_band(); ++b) {
        const Band band = panel_.band(b);
        if (mixes)
          compose_band<Key>(band, band, sizes_.mix, band_weights(pre, sizes_.mix, b), key_block,
                            {scales_.data(), 0});
        fill_hidden(in_, state_->block(), p, b, band, kHidden);
        for (int64_t m = 0; m < heads_; ++m) {
          const int64_t place = m * state_->row_stride() + b * kSide;
          softmax_band(band, state_->tile().panel(p).band(b), m, mixes ? 1.0f : sizes_.scale,
                       maxima + place, sums + place, state_->reference(p) + place);
        }
      }
    }
  }

  // P by the scales, A'' = post(P), and A''·v, which sets `output`, or is added to it.
  void multiply_values(int64_t chunk, float* output, bool add) {
    products_.begin_output();
    const bool mixes = stage_mixes(in_.composition, 1);
    const MixWeights post = weights(1);
    const KeyRange panels = state_->panels(chunk);
    for (int64_t p = panels.begin; p < panels.end; ++p) {
      const Key* key_block = mixes ? products_.key_block(p, 1) : nullptr;
      for (int64_t b = 0; b < panel_.n_band(); ++b) {
        const Band band = panel_.band(b);
        const RowScales scales{state_->reference(p) + b * kSide, state_->row_stride()};
        compose_band<Key>(state_->tile().panel(p).band(b), band, sizes_.mix,
                          band_weights(post, sizes_.mix, b), key_block, scales);
        fill_hidden(in_, state_->block(), p, b, band, 0.0f);
      }
      products_.add_values(p, panel_);
    }
    products_.end_output();
    for (int64_t m = 0; m < heads_; ++m)
      for (int64_t row = 0; row < state_->block().rows; ++row, output += sizes_.padded_dim) {
        const float* sums = products_.output(m, row);
        for (int64_t d = 0; d < sizes_.padded_dim; ++d)
          output[d] = add ? output[d] + sums[d] : sums[d];
      }
  }

 private:
  using Key = typename Products::Key;
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();

  MixWeights weights(int64_t stage) const {
    return stage_weights(in_.composition, state_->block(), sizes_, state_->group(), stage,
                         weights_.data());
  }

  const ForwardCall& call_;
  const AttentionInputs& in_;
  const TileSizes& sizes_;
  int64_t heads_;
  Products products_;
  Buffer<float> weights_, panel_memory_;
  // What scores are multiplied with, for each row of a band.
  std::array<float, kSide> scales_;
  // What lives for one panel, in memory that stays in the cache.
  PanelTile panel_;
  const BlockState* state_ = nullptr;
};

void write_statistics(const ForwardCall& call, const BlockState& state) {
  if (call.statistics == nullptr) return;
  const int64_t heads = call.sizes.mix.heads;
  for (int64_t m = 0; m < heads; ++m)
    for (int64_t row = 0; row < state.block().rows; ++row) {
      const int64_t place = m * state.row_stride() + row;
      float* entry = call.statistics +
                     (state.block().query(row) * call.sizes.n_head + state.group() * heads + m) * 2;
      entry[0] = state.maximum()[place];
      entry[1] = state.inverse_sum()[place];
    }
}

void write_output(const ForwardCall& call, const BlockState& state) {
  const int64_t heads = call.sizes.mix.heads;
  visit_dtype(call.o.dtype, "composed_attention", [&](auto type) {
    using O = decltype(type);
    const auto out = call.o.typed<O>();
    const float* from = state.output(0);
    for (int64_t m = 0; m < heads; ++m)
      for (int64_t row = 0; row < state.block().rows; ++row, from += call.sizes.padded_dim) {
        O* to = out.at(state.block().query(row), state.group() * heads + m);
        for (int64_t d = 0; d < call.sizes.head_dim; ++d) to[d] = static_cast<O>(from[d]);
      }
  });
}

/// The blocks of all sequences, by groups: task i is a block of a group.
struct ForwardTasks {
  explicit ForwardTasks(const ForwardCall& call) : n_group(call.sizes.n_group) {
    for (size_t s = 0; s < call.in.sequences.size(); ++s)
      for (const Block& block : blocks_of(call.in, static_cast<int64_t>(s)))
        blocks.push_back(block);
    // Longest first, so that no thread is left with a long one at the end.
    std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
      return a.rows * a.n_panel() > b.rows * b.n_panel();
    });
  }
  // Group by group: one group's keys and values stay in the cache for all its blocks.
  int64_t n() const { return n_block() * n_group; }
  const Block& block(int64_t i) const { return blocks[static_cast<size_t>(i % n_block())]; }
  int64_t group(int64_t i) const { return i / n_block(); }
  int64_t n_block() const { return static_cast<int64_t>(blocks.size()); }

  std::vector<Block> blocks;
  int64_t n_group;
};

// Each thread takes the next block. One state and worker a thread: fresh memory for each block
// would cost more than the arithmetic in it.
template <typename Products, typename... Keys>
void forward_by_blocks(const ForwardCall& call, const ForwardTasks& tasks,
                       const BlockLimits& limits, const Keys&... keys) {
  std::atomic<int64_t> next = 0;
  parallel_for(call.context, std::min<int64_t>(call.context.n_thread(), tasks.n()), [&](int64_t) {
    BlockState state(call, limits, 1);
    ForwardWorker<Products> worker(call, limits, keys...);
    for (int64_t i = next++; i < tasks.n(); i = next++) {
      state.begin(tasks.block(i), tasks.group(i), Products::kWholeBands);
      worker.begin(state);
      for (int64_t c = 0; c < state.n_chunk(); ++c) worker.exponentials(c);
      state.finish();
      write_statistics(call, state);
      std::fill_n(state.output(0), state.n_chunk() == 0 ? state.output_numel() : 0, 0.0f);
      for (int64_t c = 0; c < state.n_chunk(); ++c)
        worker.multiply_values(c, state.output(0), c > 0);
      write_output(call, state);
    }
  });
}

// Each thread takes the next chunk of keys of a block, for few blocks with many keys, as in
// decoding.
template <typename Products, typename... Keys>
void forward_by_chunks(const ForwardCall& call, const ForwardTasks& tasks,
                       const BlockLimits& limits, const Keys&... keys) {
  std::vector<BlockState> states;
  std::vector<std::pair<int64_t, int64_t>> chunks;
  for (int64_t i = 0; i < tasks.n(); ++i) {
    states.emplace_back(call, limits, std::max<int64_t>(1, limits.n_panel / kChunkPanels + 2));
    states.back().begin(tasks.block(i), tasks.group(i), Products::kWholeBands);
    for (int64_t c = 0; c < states.back().n_chunk(); ++c) chunks.emplace_back(i, c);
  }
  const auto n_chunk = static_cast<int64_t>(chunks.size());
  const auto for_chunks = [&](auto&& body) {
    std::atomic<int64_t> next = 0;
    parallel_for(call.context, std::min<int64_t>(call.context.n_thread(), n_chunk), [&](int64_t) {
      ForwardWorker<Products> worker(call, limits, keys...);
      const BlockState* begun = nullptr;
      for (int64_t i = next++; i < n_chunk; i = next++) {
        const auto [task, chunk] = chunks[static_cast<size_t>(i)];
        const BlockState& state = states[static_cast<size_t>(task)];
        if (&state != begun) worker.begin(state);
        begun = &state;
        body(worker, state, chunk);
      }
    });
  };
  for_chunks([](auto& worker, const BlockState&, int64_t chunk) { worker.exponentials(chunk); });
  for (BlockState& state : states) {
    state.finish();
    write_statistics(call, state);
  }
  for_chunks([](auto& worker, const BlockState& state, int64_t chunk) {
    worker.multiply_values(chunk, state.output(chunk), false);
  });
  for (const BlockState& state : states) {
    float* sum = state.output(0);
    std::fill_n(sum, state.n_chunk() == 0 ? state.output_numel() : 0, 0.0f);
    for (int64_t c = 1; c < state.n_chunk(); ++c)
      for (int64_t i = 0; i < state.output_numel(); ++i) sum[i] += state.output(c)[i];
    write_output(call, state);
  }
}

template <typename Products, typename... Keys>
void forward(const ForwardCall& call, const Keys&... keys) {
  const ForwardTasks tasks(call);
  const BlockLimits limits(tasks.blocks, Products::kWholeBands);
  const bool few = tasks.n() < 4 * call.context.n_thread() && limits.rows <= kPanel;
  if (few && call.context.n_thread() > 1 && limits.n_panel > kChunkPanels) {
    forward_by_chunks<Products>(call, tasks, limits, keys...);
  } else {
    forward_by_blocks<Products>(call, tasks, limits, keys...);
  }
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
