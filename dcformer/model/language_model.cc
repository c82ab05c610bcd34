#include "dcformer/model/language_model.h"

#include <cmath>

#include "dcformer/base/check.h"
#include "dcformer/ops/add.h"
#include "dcformer/ops/convert.h"
#include "dcformer/ops/embedding.h"
#include "dcformer/ops/rms_norm.h"
#include "dcformer/tensor/all_finite.h"

namespace dcformer {
namespace {

MatrixView<float> view(const Tensor& t) { return t.matrix().typed<float>(); }

}  // namespace

LanguageModel::LanguageModel(const ModelConfig& config, Parameters parameters)
    : config_(config),
      parameters_(std::move(parameters)),
      rope_(config.block_size, config.rotary_dim(), config.rope_base),
      embedding_(&parameters_.at("tok_embeddings.weight")),
      norm_(&parameters_.at("norm.weight")),
      output_(&parameters_.at("output.weight")) {
  // The registry begins with the embedding; the layers follow one another.
  size_t next = 1;
  for (int64_t layer = 0; layer < config_.n_layer; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const size_t first = next;
    while (parameters_.all()[next].spec.name.starts_with(prefix)) ++next;
    blocks_.push_back({layer, &parameters_.at(prefix + "attention_norm.weight"),
                       AttentionLayer(config_, layer, parameters_),
                       &parameters_.at(prefix + "ffn_norm.weight"),
                       FeedForward(config_, layer, parameters_), first, next});
  }
}

Tensor LanguageModel::embed(Context& context, std::span<const int32_t> ids,
                            const SequenceBatch& batch) const {
  require(static_cast<int64_t>(ids.size()) == batch.n_token(), "model: expected {} ids, got {}",
          batch.n_token(), ids.size());
  require(!batch.cached() || batch.segments.empty(), "model: segments do not go with caches");
  for (int64_t s = 0; s < batch.n_sequence(); ++s) {
    require(batch.cached() || batch.starts[static_cast<size_t>(s)] == 0,
            "model: a sequence starts at {}, expected 0 where there are no caches",
            batch.starts[static_cast<size_t>(s)]);
    const int64_t end = batch.starts[static_cast<size_t>(s)] + batch.length(s);
    require(end <= config_.block_size,
            "model: a sequence of {} tokens exceeds the context of {} (block_size)", end,
            config_.block_size);
  }
  const Tensor x = Tensor::empty(context, DType::f32, {batch.n_token(), config_.dim});
  embedding(context, ids, embedding_->matrix(), view(x));
  return x;
}

Tensor LanguageModel::normalise(Context& context, const Tensor& x, const Parameter& scale) const {
  const Tensor y = Tensor::empty(context, parameters_.compute_dtype(), x.shape());
  rms_norm(context, view(x), scale.floats(), static_cast<float>(config_.norm_eps), y.matrix());
  return y;
}

Tensor LanguageModel::add_norm_backward(Context& context, const Tensor& x, const Parameter& scale,
                                        const Tensor& dnormalised, const Tensor& dy) const {
  rms_norm_backward(context, view(x), scale.floats(), static_cast<float>(config_.norm_eps),
                    view(dnormalised), view(dy), true, scale.gradient.data<float>());
  return dy;
}

Tensor LanguageModel::block_forward(Context& context, const Block& block, const Tensor& x,
                                    const PassInputs& pass, Tape* tape) const {
  if (tape != nullptr) tape->push(x);
  const Tensor attended =
      block.attention.forward(context, normalise(context, x, *block.attention_norm), pass, tape);
  dropout(context, pass.mask(config_.dropout, block.layer, PassInputs::Site::attention),
          attended.matrix());
  const Tensor h = tape == nullptr ? x : Tensor::empty(context, DType::f32, x.shape());
  add(context, view(x), view(attended), view(h));
  if (tape != nullptr) tape->push(h);
  const Tensor fed =
      block.feed_forward.forward(context, normalise(context, h, *block.feed_forward_norm), tape);
  dropout(context, pass.mask(config_.dropout, block.layer, PassInputs::Site::feed_forward),
          fed.matrix());
  const Tensor y = tape == nullptr ? h : Tensor::empty(context, DType::f32, x.shape());
  add(context, view(h), view(fed), view(y));
  return y;
}

Tensor LanguageModel::before_dropout(Context& context, const Tensor& dy,
                                     const DropoutMask& mask) const {
  if (mask.rate == 0) return dy;
  const Tensor dropped = Tensor::empty(context, DType::f32, dy.shape());
  convert(context, dy.matrix(), dropped.matrix());
  dropout(context, mask, dropped.matrix());
  return dropped;
}

Tensor LanguageModel::block_backward(Context& context, const Block& block, const Tensor& dy,
                                     const PassInputs& pass, Tape& tape) const {
  const auto before = [&](const Tensor& gradient, PassInputs::Site site) {
    return before_dropout(context, gradient, pass.mask(config_.dropout, block.layer, site));
  };
  // y = h + dropout(mlp(norm(h)))
  const Tensor dfed =
      block.feed_forward.backward(context, before(dy, PassInputs::Site::feed_forward), tape);
  const Tensor h = tape.pop();
  const Tensor dh = add_norm_backward(context, h, *block.feed_forward_norm, dfed, dy);
  // h = x + dropout(attention(norm(x)))
  const Tensor dattended =
      block.attention.backward(context, before(dh, PassInputs::Site::attention), pass, tape);
  const Tensor x = tape.pop();
  return add_norm_backward(context, x, *block.attention_norm, dattended, dh);
}

Tensor LanguageModel::trunk(Context& context, std::span<const int32_t> ids, const PassInputs& pass,
                            Tape* tape) const {
  Tensor x = embed(context, ids, pass.batch);
  for (const Block& block : blocks_) x = block_forward(context, block, x, pass, tape);
  return x;
}

Tensor LanguageModel::checkpointed_trunk(Context& context, std::span<const int32_t> ids,
                                         const PassInputs& pass, Tape& tape) const {
  Tensor x = embed(context, ids, pass.batch);
  for (const Block& block : blocks_) {
    tape.push(x);
    // The same forward as without checkpointing, so that the bits agree; its tape is dropped.
    Tape dropped;
    x = block_forward(context, block, x, pass, &dropped);
  }
  return x;
}

Tensor LanguageModel::forward(Context& context, std::span<const int32_t> ids,
                              const SequenceBatch& batch) const {
  const std::vector<int64_t> positions = batch.positions();
  const PassInputs pass{batch, positions, rope_, std::nullopt};
  const Tensor x = trunk(context, ids, pass, nullptr);
  for (int64_t s = 0; s < batch.n_sequence() && batch.cached(); ++s)
    batch.caches[static_cast<size_t>(s)]->advance(batch.length(s));
  return normalise(context, x, *norm_);
}

void LanguageModel::logits(Context& context, ConstMatrix hidden, MatrixView<float> logits) const {
  linear(context, hidden, output_->weight(), logits);
}

CrossEntropySum LanguageModel::loss(Context& context, std::span<const int32_t> ids,
                                    std::span<const int32_t> targets,
                                    const SequenceBatch& batch) const {
  const Tensor hidden = forward(context, ids, batch);
  return linear_cross_entropy(context, hidden.matrix(), output_->weight(), targets, nullptr);
}

CrossEntropySum LanguageModel::loss_and_gradients(Context& context, std::span<const int32_t> ids,
                                                  std::span<const int32_t> targets,
                                                  const SequenceBatch& batch,
                                                  const TrainingPass& training) const {
  require(parameters_.trains(), "model: loaded for inference, it has no gradients");
  require(!batch.cached(), "model: training uses no caches");
  const std::vector<int64_t> positions = batch.positions();
  const PassInputs pass{batch, positions, rope_, training.dropout};
  Tape tape;
  const bool again = training.checkpoint_activations;
  const Tensor x =
      again ? checkpointed_trunk(context, ids, pass, tape) : trunk(context, ids, pass, &tape);
  const Tensor hidden = normalise(context, x, *norm_);
  const Tensor dhidden = Tensor::empty(context, DType::f32, x.shape());
  const CrossEntropyGradients gradients{training.scale, dhidden.matrix(),
                                        output_->gradient.matrix()};
  const CrossEntropySum sum =
      linear_cross_entropy(context, hidden.matrix(), output_->weight(), targets, &gradients);
  const auto finish = [&](const Parameter& p) {
    if (training.on_final) training.on_final(p);
  };
  finish(*output_);
  Tensor dx = Tensor::zeros(context, DType::f32, x.shape());
  dx = add_norm_backward(context, x, *norm_, dhidden, dx);
  finish(*norm_);
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    Tape rerun;
    if (again) block_forward(context, *block, tape.pop(), pass, &rerun);
    dx = block_backward(context, *block, dx, pass, again ? rerun : tape);
    for (size_t i = block->first_parameter; i < block->last_parameter; ++i)
      finish(parameters_.all()[i]);
  }
  embedding_backward(context, ids, view(dx), embedding_->gradient.matrix().typed<float>());
  finish(*embedding_);
  return sum;
}

std::string LanguageModel::first_not_finite(Context& context, std::span<const int32_t> ids,
                                            std::span<const int32_t> targets,
                                            const SequenceBatch& batch) const {
  const std::vector<int64_t> positions = batch.positions();
  const PassInputs pass{batch, positions, rope_, std::nullopt};
  Tensor x = embed(context, ids, batch);
  if (!all_finite(x)) return "tok_embeddings";
  for (const Block& block : blocks_) {
    x = block_forward(context, block, x, pass, nullptr);
    if (!all_finite(x)) return "layers." + std::to_string(block.layer);
  }
  const Tensor hidden = normalise(context, x, *norm_);
  const CrossEntropySum sum =
      linear_cross_entropy(context, hidden.matrix(), output_->weight(), targets, nullptr);
  return std::isfinite(sum.loss) ? "" : "output";
}

}  // namespace dcformer
