#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dcformer/base/file.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/train/trainer.h"
#include "tests/support/temporary_folder.h"

namespace dcformer::test {

/// Runs a trainer to its end (or `stop_after`); the metrics of its steps.
inline std::vector<StepMetrics> run(Trainer& trainer) {
  std::vector<StepMetrics> metrics;
  trainer.run({[&](const StepMetrics& m) { metrics.push_back(m); }, {}, {}});
  return metrics;
}

/// A trainer made, run, and gone.
inline std::vector<StepMetrics> run_once(Context& context, const RunConfig& config,
                                         const std::string& folder, const TrainerOptions& options) {
  Trainer trainer(context, config, folder, options);
  return run(trainer);
}

/// A text whose next byte is easily told.
inline std::string write_text(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "line " + std::to_string(i % 10) + ": the cat sat on the mat.\n";
  const std::string path = folder.path() + "/text.txt";
  std::ofstream(path) << text;
  return path;
}

inline RunConfig small_run(const std::string& text, const std::string& dtype,
                           int64_t accumulation) {
  const nlohmann::json json = {
      {"model",
       {{"dim", 32},
        {"n_layer", 2},
        {"n_head", 4},
        {"intermediate_size", 64},
        {"block_size", 64},
        {"use_qk_norm", true},
        {"windows", {8, nullptr}}}},
      {"data", {{"text", text}, {"tokenizer", "byte"}, {"sequence_length", 33}}},
      {"train",
       {{"steps", 12},
        {"warmup_steps", 2},
        {"learning_rate", 1e-2},
        {"batch_size", 4},
        {"accumulation", accumulation},
        {"dtype", dtype},
        {"init_std", 0.05}}}};
  return parse_run_config(json, "small run");
}

inline std::string weights_of(const std::string& run) {
  return read_file(model_folder(run) + "/model.safetensors");
}

/// Writes the weights of a model folder into another, which is made, after change(name, values) of
/// each tensor; and its config.json.
inline void write_changed_model(
    Context& context, const std::string& from, const std::string& to,
    const std::function<void(const std::string&, std::span<float>)>& change) {
  std::filesystem::create_directories(to);
  std::filesystem::copy(from + "/config.json", to + "/config.json");
  const auto file = SafetensorsFile::open(from + "/model.safetensors");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    const Tensor changed = Tensor::empty(context, DType::f32, entry.shape);
    const auto values = file.tensor(entry).span<float>();
    std::copy(values.begin(), values.end(), changed.data<float>());
    change(entry.name, changed.span<float>());
    tensors.emplace_back(entry.name, changed);
  }
  write_safetensors(to + "/model.safetensors", tensors);
}

/// The configuration after its sections were changed: what its run file says.
inline RunConfig with_its_json(RunConfig config) {
  config.json = {
      {"model", config.model}, {"data", to_json(config.data)}, {"train", to_json(config.train)}};
  return config;
}

}  // namespace dcformer::test
