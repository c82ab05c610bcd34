#include <algorithm>
#include <limits>

#include "dcformer/base/parallel.h"
#include "dcformer/ops/composed_attention.h"
#include "dcformer/ops/composed_attention_tiles.h"

namespace dcformer {
namespace {

using namespace attention;

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
    base_ =
        Tensor::zeros(context, DType::f32,
                      {n_lane * static_cast<int64_t>(in.sequences.size()) + 1, base_numel_ + 1});
  }

  /// Sets the pages of one lane and sequence to zero, on the thread that will use them.
  void clear(int64_t lane, int64_t sequence, int64_t n_key) {
    std::fill_n(page(lane, sequence, 0), (n_key + kPanel - 1) / kPanel * page_numel_, 0.0f);
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
    return memory_.data<float>() + (lane * std::max<int64_t>(1, n_page_) +
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

void for_rows(const Tile& tile, int64_t heads, int64_t rows, auto&& body) {
  for (int64_t m = 0; m < heads; ++m)
    for (int64_t row = 0; row < rows; ++row) body(m, row, tile.at(m, row));
}

/// One tile of the backward pass: from the block's queries and the saved statistics to all its
/// gradients.
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
        numel_(tile_numel(heads_, block.rows, block.columns())),
        row_numel_(heads_ * block.rows * call.sizes.padded_dim),
        memory_(call.context, 4 * numel_),
        rows_(call.context, 3 * row_numel_),
        weights_(call.context, 2 * block.rows * call.sizes.mix.block()),
        dweights_(call.context, block.rows * call.sizes.mix.block() * 17),
        scores_(tile(0)),
        probabilities_(tile(1)),
        composed_(tile(2)),
        gradient_(tile(3)) {}

  void run() {
    float* q = rows_.data();
    float* d_out = rows_.data() + row_numel_;
    pack_rows(in_.q, block_, sizes_, group_, sizes_.scale, q);
    pack_rows(call_.do_, block_, sizes_, group_, 1.0f, d_out);
    const MixWeights pre = weights(0);
    const MixWeights post = weights(1);
    recompute(q, pre, post);
    // o = A''·v: dv = A''ᵀ·do, dA'' = do·vᵀ.
    add_outer(composed_, d_out, [&](int64_t panel, int64_t kv_head) {
      return call_.sums.dv(lane_, block_.sequence_index, panel, kv_head);
    });
    compute_scores(block_, sizes_, values_, group_, d_out, gradient_);
    fill_hidden(in_, block_, gradient_, heads_, 0.0f);
    backward_stage(1, post, probabilities_);
    // P = softmax(A'): dA' = P·(dP - Σ_j P·dP).
    for_rows(gradient_, heads_, block_.rows, [&](int64_t m, int64_t row, float* d) {
      softmax_row_backward(probabilities_.at(m, row), d, block_.columns());
    });
    backward_stage(0, pre, scores_);
    // A = q·kᵀ/√D: dk = dAᵀ·q/√D, dq = dA·k/√D.
    add_outer(gradient_, q, [&](int64_t panel, int64_t kv_head) {
      return call_.sums.dk(lane_, block_.sequence_index, panel, kv_head);
    });
    write_dq();
  }

 private:
  Tile tile(int64_t index) const {
    return make_tile(memory_.data() + index * numel_, block_.rows, block_.columns());
  }

  MixWeights weights(int64_t stage) const {
    return stage_weights(in_.composition, block_, sizes_, group_, stage,
                         weights_.data() + stage * block_.rows * sizes_.mix.block());
  }

  // The forward pass: A (hidden entries 0), P, A''.
  void recompute(const float* q, const MixWeights& pre, const MixWeights& post) {
    compute_scores(block_, sizes_, keys_, group_, q, scores_);
    fill_hidden(in_, block_, scores_, heads_, 0.0f);
    compose_tile(block_, sizes_, keys_, group_, 0, pre, stage_mixes(in_.composition, 0), scores_,
                 probabilities_, nullptr);
    fill_hidden(in_, block_, probabilities_, heads_, -std::numeric_limits<float>::infinity());
    for_rows(probabilities_, heads_, block_.rows, [&](int64_t m, int64_t row, float* p) {
      const float* s =
          call_.statistics + (block_.query(row) * sizes_.n_head + group_ * heads_ + m) * 2;
      softmax_row_known(p, block_.columns(), s[0], s[1]);
    });
    compose_tile(block_, sizes_, keys_, group_, 1, post, stage_mixes(in_.composition, 1),
                 probabilities_, composed_, nullptr);
    fill_hidden(in_, block_, composed_, heads_, 0.0f);
    if (in_.q.dtype != DType::bf16) return;
    for_rows(composed_, heads_, block_.rows,
             [&](int64_t, int64_t, float* a) { round_row(a, block_.columns()); });
  }

  // Through compose_stage at `input`: gradient_ becomes the gradient of its input.
  void backward_stage(int64_t stage, const MixWeights& w, const Tile& input) {
    if (stage_mixes(in_.composition, stage)) {
      const int64_t n = block_.rows * sizes_.mix.block();
      if (w.query != nullptr) std::fill_n(dweights_.data(), n * 16, 0.0f);
      float* dbase = w.base == nullptr ? nullptr : call_.sums.dbase(task_, group_, stage);
      for (int64_t p = 0; p < block_.n_panel(); ++p) {
        const int64_t panel = block_.first_panel() + p;
        compose_panel_backward(
            input, gradient_, block_.rows, p * kPanel, sizes_.mix, w,
            keys_.block(panel, group_, stage), dweights_.data(),
            call_.sums.dblock(lane_, block_.sequence_index, panel, group_, stage), dbase);
      }
      fill_hidden(in_, block_, gradient_, heads_, 0.0f);
    }
    write_dquery(stage, w);
  }

  void write_dquery(int64_t stage, const MixWeights& w) {
    if (in_.composition.query.data == nullptr) return;
    const CompositionView& view = in_.composition.query;
    const int64_t block = sizes_.mix.block();
    const int64_t gate = 2 * sizes_.mix.rank * heads_;
    float* reduced = dweights_.data() + block_.rows * block * 16;
    if (w.query != nullptr) {
      reduce_lanes(dweights_.data(), block_.rows * block, reduced);
    } else {
      std::fill_n(reduced, block_.rows * block, 0.0f);
    }
    for (int64_t row = 0; row < block_.rows; ++row) {
      float* to = call_.out.dquery + (view.at(block_.query(row), group_, stage) - view.data);
      std::copy_n(reduced + row * block, block, to);
      if (!in_.composition.gates) std::fill(to + gate, to + block, 0.0f);
    }
  }

  // accumulator(panel, kv_head)[j] += Σ_row a[m][row][j]·x[m][row] for all heads.
  void add_outer(const Tile& a, const float* x, auto&& accumulator) {
    for (int64_t m = 0; m < heads_; ++m)
      for (int64_t p = 0; p < block_.n_panel(); ++p) {
        const int64_t panel = block_.first_panel() + p;
        panel_outer(a.at(m, 0) + p * kPanel, block_.rows, a.row_stride,
                    x + m * block_.rows * sizes_.padded_dim, sizes_.padded_dim, sizes_.padded_dim,
                    std::max<int64_t>(0, block_.key_begin - panel * kPanel),
                    std::min(kPanel, block_.key_end - panel * kPanel),
                    accumulator(panel, sizes_.kv_head(group_, m)));
      }
  }

  void write_dq() {
    float* dq = rows_.data() + 2 * row_numel_;
    std::fill_n(dq, row_numel_, 0.0f);
    multiply_values(block_, sizes_, values_, group_, gradient_, dq);
    for (int64_t m = 0; m < heads_; ++m)
      for (int64_t row = 0; row < block_.rows; ++row) {
        float* to = call_.out.dq.at(block_.query(row), group_ * heads_ + m);
        const float* from = dq + (m * block_.rows + row) * sizes_.padded_dim;
        for (int64_t d = 0; d < sizes_.head_dim; ++d) to[d] = from[d] * sizes_.scale;
      }
  }

  const BackwardCall& call_;
  const AttentionInputs& in_;
  const TileSizes& sizes_;
  const Block& block_;
  const Panels<float>& keys_;
  const Panels<float>& values_;
  int64_t group_, lane_, task_, heads_, numel_, row_numel_;
  Floats memory_, rows_, weights_, dweights_;
  Tile scores_, probabilities_, composed_, gradient_;
};

// dk, dv and the key-side blocks of one token: the lanes added in order.
void write_key_gradients(const BackwardCall& call, int64_t sequence, int64_t key) {
  const AttentionSequence& s = call.in.sequences[static_cast<size_t>(sequence)];
  const TileSizes& sizes = call.sizes;
  const int64_t token = s.key_begin + key;
  const int64_t panel = key / kPanel;
  const int64_t slot = key % kPanel;
  const auto add_lanes = [&](float* to, int64_t n, auto&& value) {
    for (int64_t i = 0; i < n; ++i) {
      float sum = value(0, i);
      for (int64_t lane = 1; lane < call.sums.n_lane(); ++lane) sum += value(lane, i);
      to[i] = sum;
    }
  };
  for (int64_t h = 0; h < sizes.n_kv_head; ++h) {
    add_lanes(call.out.dk.at(token, h), sizes.head_dim, [&](int64_t lane, int64_t d) {
      return call.sums.dk(lane, sequence, panel, h)[slot * sizes.padded_dim + d];
    });
    add_lanes(call.out.dv.at(token, h), sizes.head_dim, [&](int64_t lane, int64_t d) {
      return call.sums.dv(lane, sequence, panel, h)[slot * sizes.padded_dim + d];
    });
  }
  const CompositionView& view = call.in.composition.key;
  if (view.data == nullptr) return;
  const int64_t gate = 2 * sizes.mix.rank * sizes.mix.heads;
  for (int64_t g = 0; g < sizes.n_group; ++g)
    for (int64_t stage = 0; stage < 2; ++stage) {
      float* to = call.out.dkey + (view.at(token, g, stage) - view.data);
      add_lanes(to, sizes.mix.block(), [&](int64_t lane, int64_t i) {
        return call.sums.dblock(lane, sequence, panel, g, stage)[i * kPanel + slot];
      });
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
  require(do_.n_token == inputs.q.n_token && do_.n_head == inputs.q.n_head &&
              do_.head_dim == inputs.q.head_dim,
          "composed_attention_backward: expected do [N,H,D] = [{},{},{}], got [{},{},{}]",
          inputs.q.n_token, inputs.q.n_head, inputs.q.head_dim, do_.n_token, do_.n_head,
          do_.head_dim);
  const auto n_sequence = static_cast<int64_t>(inputs.sequences.size());
  if (n_sequence == 0) return;
  const TileSizes sizes(inputs);
  const PackedPages keys(context, inputs, inputs.k, inputs.v, true);
  // The same with the parts changed over: do·vᵀ needs v as the keys lie, dA·k needs k as the values
  // lie.
  const PackedPages values(context, inputs, inputs.v, inputs.k, false);
  const int64_t n_lane = n_sequence >= 8 ? 1 : std::max<int64_t>(1, 8 / n_sequence);
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
    for (size_t b = static_cast<size_t>(lane); b < blocks.size(); b += static_cast<size_t>(n_lane))
      for (int64_t group = 0; group < sizes.n_group; ++group)
        BackwardTile(call, blocks[b], key_panels, value_panels, group, lane, task).run();
  });
  for (int64_t s = 0; s < n_sequence; ++s)
    parallel_chunks(context, inputs.sequences[static_cast<size_t>(s)].n_key, 32,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t key = begin; key < end; ++key) write_key_gradients(call, s, key);
                    });
  add_base_gradients(call, n_sequence * n_lane);
}

}  // namespace dcformer
