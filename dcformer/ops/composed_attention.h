#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// Composed attention: every head's scores and weights are mixed with those of the other heads of
/// its group, before and after the softmax (DCMHA, arXiv 2405.08553, section 3). The formulas are
/// those of docs/design.md, section 2, items 4 to 9. One kernel frame serves training, prefill and
/// decoding, with or without composition. A row's arithmetic does not depend on the rows beside it:
/// keys are taken in panels of 32, aligned to absolute positions, and every sum has one order.

/// Keys in a panel, and tokens in a cache page.
constexpr int64_t kPanel = 32;

/// The largest rank of the dynamic composition.
constexpr int64_t kMaxRank = 8;

/// The most heads of a group: the kernels keep one vector of each on the stack.
constexpr int64_t kMaxGroupHeads = 1024;

/// One side's dynamic weights: for each token, group and stage (0 pre, 1 post) a contiguous block
/// `[2R+1, M]` of f32: R rows w1, R rows w2, the gates. No data where the side is off.
struct CompositionView {
  const float* data = nullptr;
  int64_t token_stride = 0;
  int64_t group_stride = 0;
  int64_t stage_stride = 0;

  const float* at(int64_t token, int64_t group, int64_t stage) const {
    return data + token * token_stride + group * group_stride + stage * stage_stride;
  }
};

/// Which mixing takes place. Everything off is plain multi-head attention.
struct Composition {
  int64_t n_group = 1;
  int64_t rank = 0;
  bool pre = false;
  bool post = false;
  /// The gates count (their rows in the blocks are read only then).
  bool gates = false;
  CompositionView query;
  CompositionView key;
  /// Static base projections `[G,M,M]`, W[n,m] from head n to head m, or null.
  const float* pre_base = nullptr;
  const float* post_base = nullptr;
};

/// One sequence: its rows among the queries and among the keys. Query i stands at position start +
/// i, key j at j.
struct AttentionSequence {
  int64_t query_begin = 0;
  int64_t n_query = 0;
  int64_t key_begin = 0;
  int64_t n_key = 0;
  int64_t start = 0;
};

/// What a query sees. Causal: keys up to its own position; a window of W >= 1 keeps exactly W keys
/// and needs `causal`; segments (null: none), one a token of q and of k: keys of an equal number.
struct AttentionMask {
  bool causal = true;
  std::optional<int64_t> window;
  const int32_t* query_segments = nullptr;
  const int32_t* key_segments = nullptr;
};

/// Everything that the forward and backward passes read. q [N,H,D], k and v [S,Hkv,D], all f32 or
/// all bf16; scores are scaled by 1/sqrt(D). With bf16 everything that is multiplied with them is
/// rounded to bf16 too: the composed weights, the gradient of o, and that of the scores.
struct AttentionInputs {
  ConstHeads q;
  ConstHeads k;
  ConstHeads v;
  Composition composition;
  AttentionMask mask;
  std::span<const AttentionSequence> sequences;
};

/// o [N,H,D], f32 or bf16, is set (0 for a row that sees no key). `statistics` [N,H,2] (row maximum
/// and 1/sum of the pre-composed scores) is set unless null. Throws Error for shapes that disagree,
/// a window below 0 or with `causal` off, a rank over 8.
void composed_attention(Context& context, const AttentionInputs& inputs, Heads o,
                        float* statistics);

/// Gradients, f32: all are set, for the rows that the sequences cover. dq [N,H,D], dk and dv
/// [S,Hkv,D]; dquery and dkey have the layout of the composition's views (no data where a side is
/// off; blocks of stages that are off are set to 0); the base gradients [G,M,M] are added to (null
/// where there is none).
struct AttentionGradients {
  HeadView<float> dq;
  HeadView<float> dk;
  HeadView<float> dv;
  float* dquery = nullptr;
  float* dkey = nullptr;
  float* dpre_base = nullptr;
  float* dpost_base = nullptr;
};

/// Differentiates composed_attention for the gradient `do_` [N,H,D] f32 of o. Needs the forward's
/// statistics. Sums over queries have an order fixed by the shapes.
void composed_attention_backward(Context& context, const AttentionInputs& inputs,
                                 const float* statistics, HeadView<const float> do_,
                                 const AttentionGradients& gradients);

/// The sizes of a cache page of one layer: 32 tokens' K as `[Hkv][D][32]`, V as `[Hkv][32][D']` (D'
/// is D rounded up to 16), and key-side blocks as `[G][2][(2R+1)·M][32]`, one after the other, f32
/// or bf16.
struct PageLayout {
  DType dtype = DType::f32;
  int64_t n_kv_head = 0;
  int64_t head_dim = 0;
  int64_t n_group = 1;
  /// (2R+1)·M, or 0 where there is no key side.
  int64_t block = 0;

  int64_t value_width() const { return (head_dim + 15) / 16 * 16; }
  int64_t value_offset() const { return n_kv_head * head_dim * kPanel; }
  int64_t block_offset() const { return value_offset() + n_kv_head * value_width() * kPanel; }
  /// Elements of a page.
  int64_t numel() const { return block_offset() + n_group * 2 * block * kPanel; }
};

/// Writes the keys, values and key-side blocks of the rows [begin, begin + count) of k, v and
/// composition.key into pages at positions `position` and on; pages[p] holds positions 32p …
/// 32p+31.
void write_pages(const PageLayout& layout, std::span<void* const> pages, int64_t position,
                 ConstHeads k, ConstHeads v, const Composition& composition, int64_t begin,
                 int64_t count);

/// composed_attention with keys in pages: pages[s] lists the pages of sequence s; those that no
/// query of the call sees may be null, and unused slots may hold anything. `inputs.k` and
/// `inputs.v` and the composition's key view are not read, nor key_begin of the sequences.
void composed_attention_paged(Context& context, const AttentionInputs& inputs,
                              const PageLayout& layout,
                              std::span<const std::span<void* const>> pages, Heads o);

}  // namespace dcformer
