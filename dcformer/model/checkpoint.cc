#include "dcformer/model/checkpoint.h"

#include <spdlog/spdlog.h>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/io/tensor_folder.h"
#include "dcformer/ops/convert.h"

namespace dcformer {
namespace {

constexpr const char* kWeights = "/model.safetensors";
constexpr const char* kConfig = "/config.json";

// The values of a folder in registry order.
std::vector<Tensor> collect(Context& context, const std::string& folder, const ModelConfig& config,
                            const std::vector<ParameterSpec>& specs, CompositionWeights choice) {
  const auto source = open_tensor_folder(folder);
  const PublishedWeights weights(*source, config, specs, choice);
  for (const std::string& warning : weights.warnings()) spdlog::warn("{}", warning);
  std::vector<Tensor> values;
  for (const ParameterSpec& spec : specs) values.push_back(weights.value(context, spec));
  return values;
}

}  // namespace

ModelConfig read_model_config(const std::string& folder) {
  const std::string path = folder + kConfig;
  return parse_model_config(read_json_file(path), path, UnknownKeys::warn);
}

std::unique_ptr<LanguageModel> load_model(Context& context, const std::string& folder,
                                          DType compute, CompositionWeights choice) {
  const ModelConfig config = read_model_config(folder);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  return std::make_unique<LanguageModel>(
      config, Parameters::for_inference(context, specs,
                                        collect(context, folder, config, specs, choice), compute));
}

void load_weights(Context& context, const std::string& folder, const ModelConfig& config,
                  Parameters& parameters) {
  std::vector<ParameterSpec> specs;
  for (const Parameter& p : parameters.all()) specs.push_back(p.spec);
  const std::vector<Tensor> values =
      collect(context, folder, config, specs, CompositionWeights::automatic);
  for (size_t i = 0; i < values.size(); ++i)
    convert(context, values[i].matrix(), parameters.all()[i].value.matrix());
  parameters.refresh(context);
}

void save_model(const std::string& folder, const ModelConfig& config,
                const Parameters& parameters) {
  replace_file(folder + kConfig, to_json(config).dump(1) + "\n");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Parameter& p : parameters.all()) tensors.emplace_back(p.spec.name, p.value);
  write_safetensors(folder + kWeights, tensors, {{"format", "pt"}});
}

}  // namespace dcformer
