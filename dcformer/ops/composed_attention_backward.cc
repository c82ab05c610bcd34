#include <algorithm>
#include <limits>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/composed_attention.h"
#include "dcformer/ops/composed_attention_tiles.h"

namespace dcformer {
namespace {

using namespace attention;

// The most parts that a sequence's queries are cut into: as many threads can work on one sequence.
constexpr int64_t kLanes = 4;

/// Sums over queries: each lane walks its own blocks in order and adds to its own accumulators,
/// page by page; the lanes are then added in order. Their number depends on the number of sequences
/// alone.
class Accumulators {
 public:
  Accumulators(Context& context, const AttentionInputs& in, const TileSizes& sizes, int64_t n_lane)
      : sizes_(sizes), n_lane_(n_lane) {
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
                      : sizes.n_group * 2 * heads * heads * 16;
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
    const int64_t size = sizes_.mix.heads * sizes_.mix.heads * 16;
    return base_.data<float>() + task * (base_numel_ + 1) + (group * 2 + stage) * size;
  }
  bool has_base() const { return base_numel_ != 0; }
  int64_t n_lane() const { return n_lane_; }

 private:
  float* page(int64_t lane, int64_t sequence, int64_t panel) {
    return data_ + (lane * std::max<int64_t>(1, n_page_) +
                    first_page_[static_cast<size_t>(sequence)] + panel) *
                       page_numel_;
  }

  TileSizes sizes_;
  int64_t n_lane_;
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

struct BackwardCall {
  Context& context;
  const AttentionInputs& in;
  const TileSizes sizes;
  const float* statistics;
  HeadView<const float> do_;
  const AttentionGradients& out;
  Accumulators& sums;
};

/// One tile of the backward pass: from the block's queries and the saved statistics to all its
/// gradients, in two passes over its panels, since the softmax's gradient needs a sum over whole
/// rows.
class BackwardTile {
 public:
  BackwardTile(const BackwardCall& call, const Block& block, const Panels<float>& keys,
               const Panels<float>& values, int64_t group, int64_t lane, int64_t task)
      : call_(call),
        in_(call.in),
        sizes_(call.sizes),
        block_(block),
        keys_(keys),
        values_(values),
        group_(group),
        lane_(lane),
        task_(task),
        heads_(call.sizes.mix.heads),
        n_row_(heads_ * block.rows),
        weight_numel_(block.rows * call.sizes.mix.block()),
        row_numel_(n_row_ * call.sizes.padded_dim),
        memory_(call.context, 3 * tile_numel(heads_, block.rows, block.n_panel())),
        composed_memory_(call.context, tile_numel(heads_, block.rows, 1)),
        rows_(call.context, 3 * row_numel_),
        weights_(call.context, 2 * weight_numel_),
        dweights_(call.context, weight_numel_ * 17),
        row_sums_(call.context, n_row_ * 19),
        scores_(tile(0)),
        probabilities_(tile(1)),
        gradient_(tile(2)),
        composed_(make_tile(composed_memory_.data(), heads_, block.rows).panel(0)) {}

  void run() {
    pack_rows(in_.q, block_, sizes_, group_, sizes_.scale, q());
    pack_rows(call_.do_, block_, sizes_, group_, 1.0f, d_out());
    read_statistics();
    to_probabilities();
    reduce_lanes(dots(), n_row_, dot());
    to_scores();
    write_dq();
  }

 private:
  Tile tile(int64_t index) const {
    return make_tile(memory_.data() + index * tile_numel(heads_, block_.rows, block_.n_panel()),
                     heads_, block_.rows);
  }
  float* q() const { return rows_.data(); }
  float* d_out() const { return rows_.data() + row_numel_; }
  float* dq() const { return rows_.data() + 2 * row_numel_; }
  // Per row and head: maximum, 1/sum, Σ_j P·dP, and the 16 partial sums of the last.
  float* maxima() const { return row_sums_.data(); }
  float* inverse_sums() const { return row_sums_.data() + n_row_; }
  float* dot() const { return row_sums_.data() + 2 * n_row_; }
  float* dots() const { return row_sums_.data() + 3 * n_row_; }

  MixWeights weights(int64_t stage) const {
    return stage_weights(in_.composition, block_, sizes_, group_, stage,
                         weights_.data() + stage * weight_numel_);
  }
  const float* key_block(int64_t panel, int64_t stage) const {
    if (!stage_mixes(in_.composition, stage)) return nullptr;
    return keys_.block(block_.first_panel() + panel, group_, stage);
  }

  void read_statistics() const {
    for (int64_t m = 0; m < heads_; ++m)
      for (int64_t row = 0; row < block_.rows; ++row) {
        const float* s =
            call_.statistics + (block_.query(row) * sizes_.n_head + group_ * heads_ + m) * 2;
        maxima()[m * block_.rows + row] = s[0];
        inverse_sums()[m * block_.rows + row] = s[1];
      }
  }

  // The forward pass again, A (hidden entries 0), P and A'', and back from o to P; Σ_j P·dP.
  void to_probabilities() {
    const MixWeights pre = weights(0);
    const MixWeights post = weights(1);
    std::fill_n(dots(), n_row_ * 16, 0.0f);
    if (post.query != nullptr) std::fill_n(dweights_.data(), weight_numel_ * 16, 0.0f);
    for (int64_t p = 0; p < block_.n_panel(); ++p) {
      const PanelTile a = scores_.panel(p);
      const PanelTile probabilities = probabilities_.panel(p);
      const PanelTile gradient = gradient_.panel(p);
      compute_scores(block_, p, sizes_, keys_, group_, q(), a);
      fill_hidden(in_, block_, p, a, heads_, 0.0f);
      compose_panel<float>(a, probabilities, block_.rows, sizes_.mix, pre, key_block(p, 0),
                           nullptr);
      fill_hidden(in_, block_, p, probabilities, heads_, -std::numeric_limits<float>::infinity());
      for (int64_t m = 0; m < heads_; ++m)
        softmax_panel_known(probabilities.at(m, 0), block_.rows, maxima() + m * block_.rows,
                            inverse_sums() + m * block_.rows);
      compose_panel<float>(probabilities, composed_, block_.rows, sizes_.mix, post, key_block(p, 1),
                           nullptr);
      fill_hidden(in_, block_, p, composed_, heads_, 0.0f);
      if (in_.q.dtype == DType::bf16)
        for (int64_t m = 0; m < heads_; ++m) round_values(composed_.at(m, 0), block_.rows * kPanel);
      // o = A''·v: dv = A''ᵀ·do, dA'' = do·vᵀ.
      add_outer(p, composed_, d_out(), [&](int64_t panel, int64_t kv_head) {
        return call_.sums.dv(lane_, block_.sequence_index, panel, kv_head);
      });
      compute_scores(block_, p, sizes_, values_, group_, d_out(), gradient);
      fill_hidden(in_, block_, p, gradient, heads_, 0.0f);
      backward_stage(1, p, post, probabilities, gradient);
      for (int64_t m = 0; m < heads_; ++m)
        softmax_panel_dot(probabilities.at(m, 0), gradient.at(m, 0), block_.rows,
                          dots() + m * block_.rows * 16);
    }
    write_dquery(1, post);
  }

  // P = softmax(A'): dA' = P·(dP - Σ_j P·dP); then back to A, q and k.
  void to_scores() {
    const MixWeights pre = weights(0);
    if (pre.query != nullptr) std::fill_n(dweights_.data(), weight_numel_ * 16, 0.0f);
    std::fill_n(dq(), row_numel_, 0.0f);
    for (int64_t p = 0; p < block_.n_panel(); ++p) {
      const PanelTile gradient = gradient_.panel(p);
      for (int64_t m = 0; m < heads_; ++m)
        softmax_panel_backward(probabilities_.panel(p).at(m, 0), gradient.at(m, 0), block_.rows,
                               dot() + m * block_.rows);
      backward_stage(0, p, pre, scores_.panel(p), gradient);
      // A = q·kᵀ/√D: dk = dAᵀ·q/√D, dq = dA·k/√D.
      add_outer(p, gradient, q(), [&](int64_t panel, int64_t kv_head) {
        return call_.sums.dk(lane_, block_.sequence_index, panel, kv_head);
      });
      multiply_values(block_, p, sizes_, values_, group_, gradient, dq());
    }
    write_dquery(0, pre);
  }

  // Through compose_stage at `input`: `gradient` becomes the gradient of its input.
  void backward_stage(int64_t stage, int64_t p, const MixWeights& w, const PanelTile& input,
                      const PanelTile& gradient) {
    if (!stage_mixes(in_.composition, stage)) return;
    float* dbase = w.base == nullptr ? nullptr : call_.sums.dbase(task_, group_, stage);
    compose_panel_backward(
        input, gradient, block_.rows, sizes_.mix, w, key_block(p, stage), dweights_.data(),
        call_.sums.dblock(lane_, block_.sequence_index, block_.first_panel() + p, group_, stage),
        dbase);
    fill_hidden(in_, block_, p, gradient, heads_, 0.0f);
  }

  void write_dquery(int64_t stage, const MixWeights& w) {
    if (in_.composition.query.data == nullptr) return;
    const CompositionView& view = in_.composition.query;
    const int64_t block = sizes_.mix.block();
    const int64_t gate = 2 * sizes_.mix.rank * heads_;
    float* reduced = dweights_.data() + weight_numel_ * 16;
    if (w.query != nullptr) {
      reduce_lanes(dweights_.data(), weight_numel_, reduced);
    } else {
      std::fill_n(reduced, weight_numel_, 0.0f);
    }
    for (int64_t row = 0; row < block_.rows; ++row) {
      float* to = call_.out.dquery + (view.at(block_.query(row), group_, stage) - view.data);
      std::copy_n(reduced + row * block, block, to);
      if (!in_.composition.gates) std::fill(to + gate, to + block, 0.0f);
    }
  }

  // accumulator(panel, kv_head)[j] += Σ_row a[m][row][j]·x[m][row] for all heads.
  void add_outer(int64_t p, const PanelTile& a, const float* x, auto&& accumulator) {
    const int64_t panel = block_.first_panel() + p;
    for (int64_t m = 0; m < heads_; ++m)
      panel_outer(a.at(m, 0), block_.rows, x + m * block_.rows * sizes_.padded_dim,
                  sizes_.padded_dim, sizes_.padded_dim,
                  std::max<int64_t>(0, block_.key_begin - panel * kPanel),
                  std::min(kPanel, block_.key_end - panel * kPanel),
                  accumulator(panel, sizes_.kv_head(group_, m)));
  }

  void write_dq() {
    for (int64_t m = 0; m < heads_; ++m)
      for (int64_t row = 0; row < block_.rows; ++row) {
        float* to = call_.out.dq.at(block_.query(row), group_ * heads_ + m);
        const float* from = dq() + (m * block_.rows + row) * sizes_.padded_dim;
        for (int64_t d = 0; d < sizes_.head_dim; ++d) to[d] = from[d] * sizes_.scale;
      }
  }

  const BackwardCall& call_;
  const AttentionInputs& in_;
  const TileSizes& sizes_;
  const Block& block_;
  const Panels<float>& keys_;
  const Panels<float>& values_;
  int64_t group_, lane_, task_, heads_, n_row_, weight_numel_, row_numel_;
  Floats memory_, composed_memory_, rows_, weights_, dweights_, row_sums_;
  Tile scores_, probabilities_, gradient_;
  PanelTile composed_;
};

// dk, dv and the key-side blocks of one token, whose page's lanes have been added.
void write_key_gradients(const BackwardCall& call, int64_t sequence, int64_t key) {
  const AttentionSequence& s = call.in.sequences[static_cast<size_t>(sequence)];
  const TileSizes& sizes = call.sizes;
  const int64_t token = s.key_begin + key;
  const int64_t panel = key / kPanel;
  const int64_t slot = key % kPanel;
  for (int64_t h = 0; h < sizes.n_kv_head; ++h) {
    const int64_t place = slot * sizes.padded_dim;
    std::copy_n(call.sums.dk(0, sequence, panel, h) + place, sizes.head_dim,
                call.out.dk.at(token, h));
    std::copy_n(call.sums.dv(0, sequence, panel, h) + place, sizes.head_dim,
                call.out.dv.at(token, h));
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

}  // namespace

void composed_attention_backward(Context& context, const AttentionInputs& inputs,
                                 const float* statistics, HeadView<const float> do_,
                                 const AttentionGradients& gradients) {
  check_inputs(inputs, false);
  check_gradients(inputs, do_, gradients);
  const auto n_sequence = static_cast<int64_t>(inputs.sequences.size());
  if (n_sequence == 0) return;
  const TileSizes sizes(inputs);
  const PackedPages keys(context, inputs, inputs.k, inputs.v, true);
  // The same with the parts changed over: do·vᵀ needs v as the keys lie, dA·k needs k as the values
  // lie.
  const PackedPages values(context, inputs, inputs.v, inputs.k, false);
  const int64_t n_lane = n_sequence >= kLanes ? 1 : kLanes / n_sequence;
  Accumulators sums(context, inputs, sizes, n_lane);
  const BackwardCall call{context, inputs, sizes, statistics, do_, gradients, sums};
  parallel_for(context, n_sequence * n_lane, [&](int64_t task) {
    const int64_t sequence = task / n_lane;
    const int64_t lane = task % n_lane;
    sums.clear(lane, sequence, inputs.sequences[static_cast<size_t>(sequence)].n_key);
    const std::vector<Block> blocks = blocks_of(inputs, sequence);
    const Panels<float> key_panels{&keys.layout(), keys.pages()[static_cast<size_t>(sequence)]};
    const Panels<float> value_panels{&values.layout(),
                                     values.pages()[static_cast<size_t>(sequence)]};
    for (int64_t group = 0; group < sizes.n_group; ++group)
      for (size_t b = static_cast<size_t>(lane); b < blocks.size();
           b += static_cast<size_t>(n_lane))
        BackwardTile(call, blocks[b], key_panels, value_panels, group, lane, task).run();
  });
  for (int64_t s = 0; s < n_sequence; ++s)
    parallel_chunks(context, inputs.sequences[static_cast<size_t>(s)].n_key, kPanel,
                    [&](int64_t begin, int64_t end) {
                      sums.add_lanes(s, begin / kPanel);
                      for (int64_t key = begin; key < end; ++key) write_key_gradients(call, s, key);
                    });
  add_base_gradients(call, n_sequence * n_lane);
}

}  // namespace dcformer
