#include "benchmarks/train_step.h"

#include <cmath>

#include "dcformer/base/random.h"
#include "dcformer/ops/adamw.h"

namespace dcformer::bench {

ModelConfig model_of_405m(int64_t n_layer) {
  ModelConfig c;
  c.dim = 1024;
  c.n_layer = n_layer;
  c.n_head = c.n_kv_head = 16;
  c.head_dim = 64;
  c.intermediate_size = 2816;
  c.vocab_size = 50257;
  c.block_size = kStepTokens;
  c.use_qk_norm = true;
  c.rope_base = 10000;
  c.windows = {256, 0};
  return c;
}

TrainStep::TrainStep(Context& context, const ModelConfig& config, DType dtype,
                     bool checkpoint_activations)
    : context_(context),
      model_(config, Parameters::for_training(context, parameter_specs(config), dtype)) {
  model_.parameters().initialise(context, 1);
  const Shape& shape = model_.parameters().values().shape();
  first_ = Tensor::zeros(context, DType::f32, shape);
  second_ = Tensor::zeros(context, DType::f32, shape);
  pass_.scale = 1.0f / kStepTokens;
  pass_.checkpoint_activations = checkpoint_activations;
  const auto vocabulary = static_cast<uint64_t>(config.vocab_size);
  const Random random(2, "ids");
  for (uint64_t i = 0; i < kStepTokens; ++i) {
    ids_.push_back(static_cast<int32_t>(random.below(i, vocabulary)));
    targets_.push_back(static_cast<int32_t>(random.below(i + kStepTokens, vocabulary)));
  }
  batch_.append(kStepTokens);
}

void TrainStep::run() {
  Parameters& p = model_.parameters();
  p.zero_gradients(context_);
  model_.loss_and_gradients(context_, ids_, targets_, batch_, pass_);
  const double norm = std::sqrt(sum_of_squares(context_, p.gradients().span<float>()));
  AdamWStep step;
  step.learning_rate = 1e-4;
  step.weight_decay = 0.1;
  step.number = ++number_;
  step.gradient_scale = norm > 1 ? 1 / norm : 1;
  adamw(context_, p.values().span<float>(), p.gradients().span<float>(), first_.span<float>(),
        second_.span<float>(), step);
  p.refresh(context_);
}

}  // namespace dcformer::bench
