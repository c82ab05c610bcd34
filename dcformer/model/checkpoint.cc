#include "dcformer/model/checkpoint.h"

#include <spdlog/spdlog.h>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/ops/convert.h"

namespace dcformer {
namespace {

constexpr const char* kWeights = "/model.safetensors";
constexpr const char* kConfig = "/config.json";

// The tensors of a file in registry order, their shapes and types checked.
std::vector<Tensor> collect(const SafetensorsFile& file, const std::vector<ParameterSpec>& specs) {
  std::vector<Tensor> values;
  for (const ParameterSpec& spec : specs) {
    const SafetensorsFile::Entry* entry = file.find(spec.name);
    require(entry != nullptr, "{}: tensor '{}' is missing", file.where(), spec.name);
    require(entry->shape == spec.shape, "{}: tensor '{}' has shape {}, expected {}", file.where(),
            spec.name, to_string(entry->shape), to_string(spec.shape));
    const bool readable =
        entry->dtype == DType::f32 || entry->dtype == DType::bf16 || entry->dtype == DType::f16;
    require(readable, "{}: tensor '{}' is {}, expected f32, bf16 or f16", file.where(), spec.name,
            name_of(entry->dtype));
    values.push_back(file.tensor(*entry));
  }
  const size_t extra = file.entries().size() - specs.size();
  if (extra != 0)
    spdlog::warn("{}: {} tensors are of no use to this configuration", file.where(), extra);
  return values;
}

}  // namespace

ModelConfig read_model_config(const std::string& folder) {
  const std::string path = folder + kConfig;
  return parse_model_config(read_json_file(path), path, UnknownKeys::warn);
}

std::unique_ptr<LanguageModel> load_model(Context& context, const std::string& folder,
                                          DType compute) {
  const ModelConfig config = read_model_config(folder);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  const SafetensorsFile file = SafetensorsFile::open(folder + kWeights);
  return std::make_unique<LanguageModel>(
      config, Parameters::for_inference(context, specs, collect(file, specs), compute));
}

void load_weights(Context& context, const std::string& folder, Parameters& parameters) {
  std::vector<ParameterSpec> specs;
  for (const Parameter& p : parameters.all()) specs.push_back(p.spec);
  const SafetensorsFile file = SafetensorsFile::open(folder + kWeights);
  const std::vector<Tensor> values = collect(file, specs);
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
