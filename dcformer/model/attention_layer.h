#pragma once

#include <optional>
#include <span>

#include "dcformer/model/parameters.h"
#include "dcformer/model/sequence_batch.h"
#include "dcformer/model/tape.h"
#include "dcformer/ops/composed_attention.h"
#include "dcformer/ops/rope.h"

namespace dcformer {

/// Where a pass stands in a training run: what the masks of dropout are drawn from.
struct DropoutPlace {
  uint64_t seed = 0;
  /// The update, and the number that the pass's first token has among its tokens.
  int64_t step = 0;
  int64_t first_token = 0;
};

/// What the layers of a model share in one pass.
struct PassInputs {
  const SequenceBatch& batch;
  std::span<const int64_t> positions;
  const RopeTable& rope;
  /// None: nothing is dropped.
  std::optional<DropoutPlace> dropout;

  /// The mask of one of the three sites of a layer. A rate of 0 where nothing is dropped.
  enum class Site : uint32_t { attention, feed_forward, composition };
  DropoutMask mask(double rate, int64_t layer, Site site) const {
    if (!dropout) return {};
    return {rate, dropout->seed, dropout->step,
            static_cast<uint32_t>(3 * layer) + static_cast<uint32_t>(site), dropout->first_token};
  }
};

/// Self-attention with dynamic composition: the fused projection, QK norm, RoPE, the composition
/// weights, composed attention and the output projection.
class AttentionLayer {
 public:
  AttentionLayer(const ModelConfig& config, int64_t layer, Parameters& parameters);

  /// x is the normalised input [N,E] in the compute type; returns [N,E] f32. With caches in the
  /// batch the new keys are written there first.
  Tensor forward(Context& context, const Tensor& x, const PassInputs& pass, Tape* tape) const;
  /// For dy [N,E] f32 returns dx [N,E] f32 and adds to the parameters' gradients.
  Tensor backward(Context& context, const Tensor& dy, const PassInputs& pass, Tape& tape) const;

 private:
  struct Projected {
    Tensor q, k, v;
  };
  Projected project(Context& context, const Tensor& qkv, const PassInputs& pass, DType type) const;
  Tensor composition(Context& context, const Tensor& x, const PassInputs& pass,
                     CompositionSaved* saved) const;
  DropoutMask composition_dropout(const PassInputs& pass) const;
  CompositionParameters composition_parameters() const;
  Composition describe(const Tensor& weights) const;
  AttentionInputs inputs(const Projected& p, const Tensor& weights, const PassInputs& pass,
                         std::span<const AttentionSequence> sequences) const;
  void attend_cached(Context& context, AttentionInputs inputs, const Projected& p,
                     const PassInputs& pass, std::vector<AttentionSequence> sequences,
                     Heads o) const;
  Tensor backward_projection(Context& context, const Tensor& qkv, const Tensor& dq,
                             const Tensor& dk, Tensor dqkv, const PassInputs& pass) const;

  const ModelConfig& config_;
  int64_t layer_;
  const Parameter* wqkv_;
  const Parameter* wo_;
  const Parameter* q_norm_ = nullptr;
  const Parameter* k_norm_ = nullptr;
  const Parameter* dw1_ = nullptr;
  const Parameter* qkw_ = nullptr;
  const Parameter* dd_ = nullptr;
  const Parameter* pre_base_ = nullptr;
  const Parameter* post_base_ = nullptr;
};

}  // namespace dcformer
