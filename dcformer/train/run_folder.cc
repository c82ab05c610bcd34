#include "dcformer/train/run_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "dcformer/base/file.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/json_object.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/model/checkpoint.h"

namespace dcformer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStepPrefix = "step-";
constexpr size_t kKeep = 2;

// The first key, as SECTION.KEY, whose values differ.
std::string first_difference(const nlohmann::json& a, const nlohmann::json& b) {
  for (const auto& section : {"model", "data", "train"}) {
    const nlohmann::json left = a.value(section, nlohmann::json::object());
    const nlohmann::json right = b.value(section, nlohmann::json::object());
    for (const auto& object : {left, right})
      for (const auto& [key, value] : object.items()) {
        const nlohmann::json x = left.value(key, nlohmann::json());
        const nlohmann::json y = right.value(key, nlohmann::json());
        if (x != y) return fmt::format("{}.{} was {} and is {}", section, key, x.dump(), y.dump());
      }
  }
  return "";
}

std::vector<std::pair<std::string, Tensor>> moment_tensors(const Moments& moments) {
  return {{"first_moment", moments.first}, {"second_moment", moments.second}};
}

}  // namespace

void RunFolder::create(const nlohmann::json& run) const {
  std::error_code error;
  if (fs::exists(path_, error)) {
    require(fs::is_directory(path_), "{}: is not a folder", path_);
    require(fs::is_empty(path_), "{}: {}", path_,
            fs::exists(path_ + "/run.json")
                ? "holds a run already; continue it with --resume, or choose another folder"
                : "is not empty; choose a new folder");
  }
  fs::create_directories(path_ + "/checkpoints", error);
  require(!error, "{}: cannot create the folder: {}", path_, error.message());
  replace_file(path_ + "/run.json", run.dump(1) + "\n");
}

void RunFolder::require_same_run(const nlohmann::json& run) const {
  const std::string file = path_ + "/run.json";
  require(fs::exists(file), "{}: holds no run to resume (no run.json)", path_);
  const std::string difference = first_difference(read_json_file(file), run);
  require(difference.empty(), "{}: the run file has changed: {}", path_, difference);
}

void RunFolder::trim_metrics(int64_t step) const {
  if (!fs::exists(metrics_path())) return;
  std::istringstream lines(read_file(metrics_path()));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    // A line that the end of the process cut short is dropped too.
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.value("step", step + 1) <= step) kept += line + "\n";
  }
  replace_file(metrics_path(), kept);
}

std::string model_folder(const std::string& path) {
  require(fs::is_directory(path), "{}: no such folder, expected a model or a run", path);
  if (fs::exists(path + "/config.json")) return path;
  require(fs::exists(path + "/latest"),
          "{}: neither a model (config.json) nor a run with a checkpoint (latest)", path);
  std::string name = read_file(path + "/latest");
  while (!name.empty() && name.back() == '\n') name.pop_back();
  const bool plain = !name.empty() && name.find('/') == std::string::npos;
  require(plain && fs::exists(path + "/checkpoints/" + name + "/config.json"),
          "{}/latest: names the checkpoint '{}', which is not there", path, name);
  return path + "/checkpoints/" + name;
}

std::optional<std::string> RunFolder::latest() const {
  if (!fs::exists(path_ + "/latest")) return std::nullopt;
  return model_folder(path_);
}

void RunFolder::save(const RunState& state, const ModelConfig& config, const Parameters& parameters,
                     const Moments& moments, const Tokenizer* tokenizer) const {
  const std::string name = fmt::format("{}{:08}", kStepPrefix, state.step);
  const std::string folder = path_ + "/checkpoints/" + name;
  const std::string beside = folder + ".partial";
  fs::remove_all(beside);
  fs::create_directories(beside);
  save_model(beside, config, parameters);
  if (tokenizer != nullptr) tokenizer->save(beside);
  write_safetensors(beside + "/optimizer.safetensors", moment_tensors(moments));
  const nlohmann::json json = {{"version", 1},
                               {"step", state.step},
                               {"position", state.position},
                               {"dtype", std::string(name_of(state.dtype))}};
  replace_file(beside + "/state.json", json.dump(1) + "\n");
  fs::remove_all(folder);
  fs::rename(beside, folder);
  replace_file(path_ + "/latest", name + "\n");
  prune(name);
}

void RunFolder::prune(const std::string& newest) const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_ + "/checkpoints")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kStepPrefix) && name < newest) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  for (size_t i = 0; i + kKeep - 1 < names.size(); ++i)
    fs::remove_all(path_ + "/checkpoints/" + names[i]);
}

RunState RunFolder::load(Context& context, const std::string& checkpoint, Parameters& parameters,
                         const Moments& moments) const {
  load_weights(context, checkpoint, parameters);
  const SafetensorsFile file = SafetensorsFile::open(checkpoint + "/optimizer.safetensors");
  for (const auto& [name, to] : moment_tensors(moments)) {
    const Tensor from = file.tensor(name);
    require(from.dtype() == DType::f32 && from.shape() == to.shape(),
            "{}: '{}' has shape {}, expected {}", file.where(), name, to_string(from.shape()),
            to_string(to.shape()));
    std::memcpy(to.raw(), from.raw(), to.bytes());
  }
  return read_run_state(checkpoint);
}

RunState read_run_state(const std::string& checkpoint) {
  const std::string path = checkpoint + "/state.json";
  JsonObject json(read_json_file(path), path);
  require(json.integer("version", 0, 0, INT64_MAX) == 1, "{}: not a version of state that is known",
          path);
  RunState state;
  state.step = json.integer("step", 0, 0, INT64_MAX);
  state.position = json.integer("position", 0, 0, INT64_MAX);
  state.dtype = json.choice("dtype", "f32", {"f32", "bf16"}) == "f32" ? DType::f32 : DType::bf16;
  return state;
}

}  // namespace dcformer
