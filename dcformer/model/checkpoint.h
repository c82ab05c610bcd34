#pragma once

#include <memory>
#include <string>

#include "dcformer/model/language_model.h"
#include "dcformer/model/published_weights.h"

namespace dcformer {

/// The configuration of a model folder (`config.json`).
ModelConfig read_model_config(const std::string& folder);

/// A model folder for inference: weights stay mapped where their type is the compute type. `choice`
/// where a file holds the composition's weights twice. Throws Error naming what is missing or
/// mis-shaped; warns of what is of no use.
std::unique_ptr<LanguageModel> load_model(
    Context& context, const std::string& folder, DType compute,
    CompositionWeights choice = CompositionWeights::automatic);

/// Copies the weights of a folder into masters that exist, of a model of the same shapes, which
/// `config` describes.
void load_weights(Context& context, const std::string& folder, const ModelConfig& config,
                  Parameters& parameters);

/// Writes `config.json` and `model.safetensors` (f32, published names) into a folder that exists.
void save_model(const std::string& folder, const ModelConfig& config, const Parameters& parameters);

}  // namespace dcformer
