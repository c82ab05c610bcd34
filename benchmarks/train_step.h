#pragma once

#include <cstdint>
#include <vector>

#include "dcformer/model/language_model.h"

namespace dcformer::bench {

/// Tokens of a step.
constexpr int64_t kStepTokens = 2048;

/// The published 405M model's shape, with as many layers.
ModelConfig model_of_405m(int64_t n_layer);

/// One update of a model on random ids: forward, backward, clipping, AdamW, the bf16 copies.
class TrainStep {
 public:
  TrainStep(Context& context, const ModelConfig& config, DType dtype, bool checkpoint_activations);
  void run();

 private:
  Context& context_;
  LanguageModel model_;
  LanguageModel::TrainingPass pass_;
  Tensor first_, second_;
  std::vector<int32_t> ids_, targets_;
  SequenceBatch batch_;
  int64_t number_ = 0;
};

}  // namespace dcformer::bench
