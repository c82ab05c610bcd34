#include <algorithm>
#include <array>
#include <limits>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/composed_attention.h"
#include "dcformer/ops/composed_attention_gradients.h"

namespace dcformer {
namespace {

using namespace attention;

// The most parts that a sequence's queries are cut into: as many threads can work on one sequence.
constexpr int64_t kLanes = 4;

struct BackwardCall {
  Context& context;
  const AttentionInputs& in;
  const TileSizes& sizes;
  const float* statistics;
  HeadView<const float> do_;
  const AttentionGradients& out;
  Accumulators& sums;
};

/// Tiles of the backward pass, one after the other in the same memory: from a block's queries and
/// the saved statistics to all its gradients, in two passes over its panels, since the softmax's
/// gradient needs a sum over whole rows. `Products` is FloatBackward or TileBackward.
template <typename Products>
class BackwardTile {
 public:
  BackwardTile(const BackwardCall& call, const BlockLimits& limits,
               const typename Products::Pages& pages, int64_t lane, int64_t task)
      : call_(call),
        in_(call.in),
        sizes_(call.sizes),
        lane_(lane),
        task_(task),
        heads_(call.sizes.mix.heads),
        products_(call.context, call.in, call.sizes, limits, pages, call.sums, lane),
        tile_numel_(Tile::numel(heads_, limits.row_panels) + kOffset),
        panel_numel_(Tile::numel(heads_, whole_bands(limits.rows)) + kOffset),
        memory_(call.context, (Products::kKeepsScores ? 3 : 2) * tile_numel_),
        panel_memory_(call.context, 3 * panel_numel_),
        weights_(call.context, 2 * limits.rows * call.sizes.mix.block()),
        dweights_(call.context, limits.rows * call.sizes.mix.block()),
        row_sums_(call.context, 3 * heads_ * whole_bands(limits.rows)) {
    scales_.fill(sizes_.scale);
    ones_.fill(1.0f);
  }

  void run(const Block& block, int64_t group) {
    block_ = &block;
    group_ = group;
    row_stride_ = whole_bands(block.rows);
    n_row_ = heads_ * row_stride_;
    weight_numel_ = block.rows * sizes_.mix.block();
    probabilities_ = tile(memory_.data());
    gradient_ = tile(memory_.data() + tile_numel_);
    if (Products::kKeepsScores) scores_ = tile(memory_.data() + 2 * tile_numel_);
    panel_ = tile(panel_memory_.data()).panel(0);
    panel_gradient_ = tile(panel_memory_.data() + panel_numel_).panel(0);
    panel_scores_ = tile(panel_memory_.data() + 2 * panel_numel_).panel(0);
    products_.begin(block, group, call_.do_);
    read_statistics();
    to_probabilities();
    to_scores();
    write_dq();
  }

 private:
  // Keeps the same place of two tiles off the same addresses modulo a page, where a load would wait
  // for a store to the other.
  static constexpr int64_t kOffset = 5 * kSide;

  Tile tile(float* memory) const {
    return {memory, heads_, block_->rows, square_room(block_->rows, Products::kWholeBands)};
  }
  // Per row and head: maximum, 1/sum, and Σ_j P·dP.
  float* maxima() const { return row_sums_.data(); }
  float* inverse_sums() const { return row_sums_.data() + n_row_; }
  float* dot() const { return row_sums_.data() + 2 * n_row_; }
  int64_t place(int64_t m, int64_t b) const { return m * row_stride_ + b * kSide; }

  PanelTile scores(int64_t p) const {
    return Products::kKeepsScores ? scores_.panel(p) : panel_scores_;
  }

  MixWeights weights(int64_t stage) const {
    return stage_weights(in_.composition, *block_, sizes_, group_, stage,
                         weights_.data() + stage * weight_numel_);
  }
  const float* key_block(int64_t panel, int64_t stage) const {
    return stage_mixes(in_.composition, stage) ? products_.key_block(panel, stage) : nullptr;
  }
  void hide(int64_t p, int64_t b, const Band& band, float value) const {
    fill_hidden(in_, *block_, p, b, band, value);
  }

  void read_statistics() const {
    std::fill_n(row_sums_.data(), 3 * n_row_, 0.0f);
    for (int64_t m = 0; m < heads_; ++m)
      for (int64_t row = 0; row < block_->rows; ++row) {
        const float* s =
            call_.statistics + (block_->query(row) * sizes_.n_head + group_ * heads_ + m) * 2;
        maxima()[m * row_stride_ + row] = s[0];
        inverse_sums()[m * row_stride_ + row] = s[1];
      }
  }

  // A = q·kᵀ, hidden entries 0.
  void compute_scores(int64_t p) const {
    const PanelTile a = scores(p);
    products_.scores(p, a);
    for (int64_t b = 0; b < a.n_band(); ++b) hide(p, b, a.band(b), 0.0f);
  }

  // The forward pass again for a panel: A, P, and A'' in `panel_`.
  void rebuild(int64_t p, const MixWeights& pre, const MixWeights& post) const {
    const bool mixes = stage_mixes(in_.composition, 0);
    const RowScales scales{mixes ? scales_.data() : ones_.data(), 0};
    compute_scores(p);
    for (int64_t b = 0; b < panel_.n_band(); ++b) {
      const Band a = scores(p).band(b);
      const Band probabilities = probabilities_.panel(p).band(b);
      const Band composed = panel_.band(b);
      compose_band<float>(a, composed, sizes_.mix, band_weights(pre, sizes_.mix, b),
                          key_block(p, 0), scales);
      hide(p, b, composed, -std::numeric_limits<float>::infinity());
      for (int64_t m = 0; m < heads_; ++m)
        softmax_band_known(composed, probabilities, m, mixes ? 1.0f : sizes_.scale,
                           maxima() + place(m, b), inverse_sums() + place(m, b));
      compose_band<float>(probabilities, composed, sizes_.mix, band_weights(post, sizes_.mix, b),
                          key_block(p, 1), {ones_.data(), 0});
      hide(p, b, composed, 0.0f);
    }
  }

  // Back from o to P, and Σ_j P·dP. o = A''·v: dv = A''ᵀ·do, dA'' = do·vᵀ.
  void to_probabilities() {
    const MixWeights pre = weights(0);
    const MixWeights post = weights(1);
    if (post.query != nullptr) std::fill_n(dweights_.data(), weight_numel_, 0.0f);
    for (int64_t p = 0; p < block_->n_panel(); ++p) {
      rebuild(p, pre, post);
      products_.add_dv(p, panel_);
      const bool mixes = stage_mixes(in_.composition, 1);
      const PanelTile d_composed = mixes ? panel_gradient_ : gradient_.panel(p);
      products_.value_gradients(p, d_composed);
      for (int64_t b = 0; b < panel_.n_band(); ++b) {
        const Band gradient = gradient_.panel(p).band(b);
        const Band probabilities = probabilities_.panel(p).band(b);
        hide(p, b, d_composed.band(b), 0.0f);
        if (mixes) backward_stage(1, p, b, post, probabilities, d_composed.band(b), gradient);
        for (int64_t m = 0; m < heads_; ++m)
          softmax_band_dot(probabilities, gradient, m, dot() + place(m, b));
      }
    }
    write_dquery(1, post);
  }

  // P = softmax(A'): dA' = P·(dP - Σ_j P·dP); then back to A, q and k. A = q·kᵀ/√D: dk = dAᵀ·q/√D,
  // dq = dA·k/√D.
  void to_scores() {
    const MixWeights pre = weights(0);
    if (pre.query != nullptr) std::fill_n(dweights_.data(), weight_numel_, 0.0f);
    for (int64_t p = 0; p < block_->n_panel(); ++p) {
      const bool mixes = stage_mixes(in_.composition, 0);
      if (mixes && !Products::kKeepsScores) compute_scores(p);
      for (int64_t b = 0; b < panel_.n_band(); ++b) {
        const Band gradient = panel_.band(b);
        for (int64_t m = 0; m < heads_; ++m)
          softmax_band_backward(probabilities_.panel(p).band(b), gradient_.panel(p).band(b), m,
                                dot() + place(m, b), gradient);
        if (mixes) backward_stage(0, p, b, pre, scores(p).band(b), gradient, gradient);
      }
      products_.add_dk_and_dq(p, panel_);
    }
    products_.end();
    write_dquery(0, pre);
  }

  // Through compose_band at `input`: from the gradient of its output to that of its (scaled) input.
  void backward_stage(int64_t stage, int64_t p, int64_t b, const MixWeights& w, const Band& input,
                      const Band& gradient, const Band& d_input) const {
    float* dbase = w.base == nullptr ? nullptr : call_.sums.dbase(task_, group_, stage);
    const RowScales scales{stage == 0 ? scales_.data() : ones_.data(), 0};
    compose_band_backward(
        input, gradient, d_input, sizes_.mix, band_weights(w, sizes_.mix, b), key_block(p, stage),
        scales, dweights_.data() + b * kSide * sizes_.mix.block(),
        call_.sums.dblock(lane_, block_->sequence_index, block_->first_panel() + p, group_, stage),
        dbase);
    hide(p, b, d_input, 0.0f);
  }

  void write_dquery(int64_t stage, const MixWeights& w) {
    if (in_.composition.query.data == nullptr) return;
    const CompositionView& view = in_.composition.query;
    const int64_t block = sizes_.mix.block();
    const int64_t gate = 2 * sizes_.mix.rank * heads_;
    if (w.query == nullptr) std::fill_n(dweights_.data(), weight_numel_, 0.0f);
    for (int64_t row = 0; row < block_->rows; ++row) {
      float* to = call_.out.dquery + (view.at(block_->query(row), group_, stage) - view.data);
      std::copy_n(dweights_.data() + row * block, block, to);
      if (!in_.composition.gates) std::fill(to + gate, to + block, 0.0f);
    }
  }

  void write_dq() {
    for (int64_t m = 0; m < heads_; ++m)
      for (int64_t row = 0; row < block_->rows; ++row) {
        float* to = call_.out.dq.at(block_->query(row), group_ * heads_ + m);
        const float* from = products_.dq(m, row);
        for (int64_t d = 0; d < sizes_.head_dim; ++d) to[d] = from[d] * sizes_.scale;
      }
  }

  const BackwardCall& call_;
  const AttentionInputs& in_;
  const TileSizes& sizes_;
  int64_t lane_, task_, heads_;
  Products products_;
  int64_t tile_numel_, panel_numel_;
  Buffer<float> memory_, panel_memory_, weights_, dweights_, row_sums_;
  // What the inputs of the two stages are multiplied with, for each row of a band.
  std::array<float, kSide> scales_, ones_;
  Tile scores_, probabilities_, gradient_;
  // What lives for one panel, in memory that stays in the cache: A', then A'' in the first pass,
  // the gradient of A in the second; the gradient of A''; the scores where they are not kept.
  PanelTile panel_, panel_gradient_, panel_scores_;
  const Block* block_ = nullptr;
  int64_t group_ = 0;
  int64_t row_stride_ = 0;
  int64_t n_row_ = 0;
  int64_t weight_numel_ = 0;
};

// dk, dv and the key-side blocks of one token, whose page's lanes have been added.
void write_key_gradients(const BackwardCall& call, int64_t sequence, int64_t key) {
  const AttentionSequence& s = call.in.sequences[static_cast<size_t>(sequence)];
  const TileSizes& sizes = call.sizes;
  const int64_t token = s.key_begin + key;
  const int64_t panel = key / kPanel;
  const int64_t slot = key % kPanel;
  for (int64_t h = 0; h < sizes.n_kv_head; ++h) {
    const float* dk = call.sums.dk(0, sequence, panel, h);
    const float* dv = call.sums.dv(0, sequence, panel, h);
    for (int64_t d = 0; d < sizes.head_dim; ++d) {
      const int64_t place = call.sums.place(slot, d);
      call.out.dk.at(token, h)[d] = dk[place] * sizes.scale;
      call.out.dv.at(token, h)[d] = dv[place];
    }
  }
  const CompositionView& view = call.in.composition.key;
  if (view.data == nullptr) return;
  const int64_t gate = 2 * sizes.mix.rank * sizes.mix.heads;
  for (int64_t g = 0; g < sizes.n_group; ++g)
    for (int64_t stage = 0; stage < 2; ++stage) {
      float* to = call.out.dkey + (view.at(token, g, stage) - view.data);
      const float* from = call.sums.dblock(0, sequence, panel, g, stage);
      for (int64_t i = 0; i < sizes.mix.block(); ++i) to[i] = from[i * kPanel + slot];
      if (!call.in.composition.gates) std::fill(to + gate, to + sizes.mix.block(), 0.0f);
    }
}

void add_base_gradients(const BackwardCall& call, int64_t n_task) {
  if (!call.sums.has_base()) return;
  const int64_t n = call.sizes.mix.heads * call.sizes.mix.heads;
  std::vector<float> reduced(static_cast<size_t>(n));
  for (int64_t task = 0; task < n_task; ++task)
    for (int64_t g = 0; g < call.sizes.n_group; ++g)
      for (int64_t stage = 0; stage < 2; ++stage) {
        float* to = stage == 0 ? call.out.dpre_base : call.out.dpost_base;
        if (to == nullptr) continue;
        reduce_lanes(call.sums.dbase(task, g, stage), n, reduced.data());
        for (int64_t i = 0; i < n; ++i) to[g * n + i] += reduced[static_cast<size_t>(i)];
      }
}

// The lane that block b goes to: forth and back, since later blocks see more keys.
int64_t lane_of(int64_t b, int64_t n_lane) {
  const int64_t step = b % (2 * n_lane);
  return step < n_lane ? step : 2 * n_lane - 1 - step;
}

template <typename Products>
void backward(Context& context, const AttentionInputs& inputs, const TileSizes& sizes,
              const float* statistics, HeadView<const float> do_,
              const AttentionGradients& gradients) {
  const typename Products::Pages pages(context, inputs);
  const auto n_sequence = static_cast<int64_t>(inputs.sequences.size());
  const int64_t n_lane = n_sequence >= kLanes ? 1 : kLanes / n_sequence;
  Accumulators sums(context, inputs, sizes, n_lane, Products::kWholeBands);
  const BackwardCall call{context, inputs, sizes, statistics, do_, gradients, sums};
  parallel_for(context, n_sequence * n_lane, [&](int64_t task) {
    const int64_t sequence = task / n_lane;
    const int64_t lane = task % n_lane;
    sums.clear(lane, sequence, inputs.sequences[static_cast<size_t>(sequence)].n_key);
    const std::vector<Block> blocks = blocks_of(inputs, sequence);
    BackwardTile<Products> tile(call, BlockLimits(blocks, Products::kWholeBands), pages, lane,
                                task);
    for (int64_t group = 0; group < sizes.n_group; ++group)
      for (size_t b = 0; b < blocks.size(); ++b)
        if (lane_of(static_cast<int64_t>(b), n_lane) == lane) tile.run(blocks[b], group);
  });
  for (int64_t s = 0; s < n_sequence; ++s)
    parallel_chunks(context, inputs.sequences[static_cast<size_t>(s)].n_key, kPanel,
                    [&](int64_t begin, int64_t end) {
                      sums.add_lanes(s, begin / kPanel);
                      for (int64_t key = begin; key < end; ++key) write_key_gradients(call, s, key);
                    });
  add_base_gradients(call, n_sequence * n_lane);
}

}  // namespace

void composed_attention_backward(Context& context, const AttentionInputs& inputs,
                                 const float* statistics, HeadView<const float> do_,
                                 const AttentionGradients& gradients) {
  check_inputs(inputs, false);
  check_gradients(inputs, do_, gradients);
  if (inputs.sequences.empty()) return;
  const TileSizes sizes(inputs);
  if (inputs.q.dtype == DType::bf16 && bf16_unit() != Bf16Unit::none) {
    backward<TileBackward>(context, inputs, sizes, statistics, do_, gradients);
  } else {
    backward<FloatBackward>(context, inputs, sizes, statistics, do_, gradients);
  }
}

}  // namespace dcformer
