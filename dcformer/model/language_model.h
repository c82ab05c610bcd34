#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dcformer/model/attention_layer.h"
#include "dcformer/model/feed_forward.h"
#include "dcformer/ops/cross_entropy.h"

namespace dcformer {

/// A decoder-only transformer: embedding, blocks of x + attention(norm(x)) and x + mlp(norm(x)),
/// final norm, output layer. One code serves training, evaluation and generation.
class LanguageModel {
 public:
  LanguageModel(const ModelConfig& config, Parameters parameters);
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  const ModelConfig& config() const { return config_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

  /// The hidden state after the final norm, [N,E] in the compute type, for ids [N]. Caches of the
  /// batch are extended by the new tokens. Throws Error for an id outside the vocabulary or a
  /// position beyond `block_size`.
  Tensor forward(Context& context, std::span<const int32_t> ids, const SequenceBatch& batch) const;

  /// logits [rows, V] f32 of hidden states [rows, E], set.
  void logits(Context& context, ConstMatrix hidden, MatrixView<float> logits) const;

  /// Σ loss over the targets [N] (negative: ignored), without gradients.
  CrossEntropySum loss(Context& context, std::span<const int32_t> ids,
                       std::span<const int32_t> targets, const SequenceBatch& batch) const;

  /// Told of a parameter once the backward pass adds nothing more to its gradient: what follows
  /// (summing over machines, say) can begin while the pass goes on.
  using GradientHook = std::function<void(const Parameter&)>;

  /// How a pass of training goes.
  struct TrainingPass {
    /// Of the gradients: those of scale · Σ loss are added.
    float scale = 1;
    /// The masks of dropout; unused where the configuration has none.
    DropoutPlace dropout = {};
    /// Keep only the input of each block, and run its forward again before its backward: the same
    /// bits with far less memory (Chen et al., "Training deep nets with sublinear memory cost",
    /// 2016).
    bool checkpoint_activations = false;
    /// May be empty.
    GradientHook on_final = {};
  };

  /// The loss as in training, with dropout, and adds its gradients to the parameters'.
  CrossEntropySum loss_and_gradients(Context& context, std::span<const int32_t> ids,
                                     std::span<const int32_t> targets, const SequenceBatch& batch,
                                     const TrainingPass& training) const;

  /// The first part of the forward pass (`tok_embeddings`, `layers.N`, `output`) whose values
  /// are not all finite; "" where all are. For messages: it runs the pass.
  std::string first_not_finite(Context& context, std::span<const int32_t> ids,
                               std::span<const int32_t> targets, const SequenceBatch& batch) const;

 private:
  struct Block {
    int64_t layer;
    const Parameter* attention_norm;
    AttentionLayer attention;
    const Parameter* feed_forward_norm;
    FeedForward feed_forward;
    /// Its parameters in the registry: [first, last).
    size_t first_parameter;
    size_t last_parameter;
  };

  Tensor embed(Context& context, std::span<const int32_t> ids, const SequenceBatch& batch) const;
  Tensor normalise(Context& context, const Tensor& x, const Parameter& scale) const;
  Tensor block_forward(Context& context, const Block& block, const Tensor& x,
                       const PassInputs& pass, Tape* tape) const;
  Tensor block_backward(Context& context, const Block& block, const Tensor& dy,
                        const PassInputs& pass, Tape& tape) const;
  /// dy + the gradient of normalise at x for the gradient `dnormalised`.
  Tensor add_norm_backward(Context& context, const Tensor& x, const Parameter& scale,
                           const Tensor& dnormalised, const Tensor& dy) const;
  /// dy as the gradient before dropout at a site: dy itself where nothing is dropped.
  Tensor before_dropout(Context& context, const Tensor& dy, const DropoutMask& mask) const;
  /// The blocks, from the embedding on; the last residual.
  Tensor trunk(Context& context, std::span<const int32_t> ids, const PassInputs& pass,
               Tape* tape) const;
  /// The same with only the blocks' inputs on the tape.
  Tensor checkpointed_trunk(Context& context, std::span<const int32_t> ids, const PassInputs& pass,
                            Tape& tape) const;

  ModelConfig config_;
  Parameters parameters_;
  RopeTable rope_;
  std::vector<Block> blocks_;
  const Parameter* embedding_;
  const Parameter* norm_;
  const Parameter* output_;
};

}  // namespace dcformer
