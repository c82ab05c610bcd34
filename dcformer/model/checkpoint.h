#pragma once

#include <memory>
#include <string>

#include "dcformer/model/language_model.h"

namespace dcformer {

/// The configuration of a model folder (`config.json`).
ModelConfig read_model_config(const std::string& folder);

/// A model folder for inference: weights stay mapped where their type is the compute type. Throws
/// Error naming what is missing, unexpected or mis-shaped.
std::unique_ptr<LanguageModel> load_model(Context& context, const std::string& folder,
                                          DType compute);

/// Copies the weights of a folder into masters that exist (of a model of the same shapes).
void load_weights(Context& context, const std::string& folder, Parameters& parameters);

/// Writes `config.json` and `model.safetensors` (f32, published names) into a folder that exists.
void save_model(const std::string& folder, const ModelConfig& config, const Parameters& parameters);

}  // namespace dcformer
