#include "dcformer/train/checkpoint_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/hash.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/json_object.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/model/checkpoint.h"

namespace dcformer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVersion = 2;
constexpr const char* kState = "state.json";
constexpr const char* kPartial = ".partial";
constexpr const char* kRemoved = ".removed";

std::string name_of_step(int64_t step) { return fmt::format("step-{:08}", step); }

// "step-00000030" of "step-30" or "30"; another name stays as it is.
std::string full_name(const std::string& name) {
  const std::string prefix = "step-";
  const char* begin = name.data() + (name.starts_with(prefix) ? prefix.size() : 0);
  const char* end = name.data() + name.size();
  int64_t step = 0;
  const auto [rest, error] = std::from_chars(begin, end, step);
  return error == std::errc() && rest == end ? name_of_step(step) : name;
}

std::vector<std::pair<std::string, Tensor>> moment_tensors(const Moments& moments) {
  return {{"first_moment", moments.first}, {"second_moment", moments.second}};
}

void write_state(const std::string& checkpoint, const RunState& state) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string path = entry.path().string();
    files[entry.path().filename().string()] = {{"bytes", entry.file_size()},
                                               {"xxh3_128", xxh3_128_of_file(path)}};
  }
  nlohmann::json json = {{"version", kVersion}, {"state", to_json(state)}, {"files", files}};
  json["xxh3_128"] = xxh3_128(json.dump());
  replace_file(checkpoint + "/" + kState, json.dump(1) + "\n");
}

void verify_file(const std::string& path, const nlohmann::json& expected) {
  require(fs::is_regular_file(path), "{}: is missing", path);
  JsonObject object(expected, path);
  const auto bytes = static_cast<uintmax_t>(object.integer("bytes", 0, 0, INT64_MAX));
  const uintmax_t size = fs::file_size(path);
  require(size == bytes, "{}: is {} by the checkpoint's list: {} bytes, expected {}", path,
          size < bytes ? "truncated" : "altered", size, bytes);
  require(xxh3_128_of_file(path) == object.text("xxh3_128", ""),
          "{}: is altered: its hash is not the one in {}", path, kState);
}

// The content of `latest`, which must be a plain name.
std::string read_latest(const std::string& run) {
  std::string name = read_file(run + "/latest");
  while (!name.empty() && name.back() == '\n') name.pop_back();
  const bool plain = !name.empty() && name.find('/') == std::string::npos;
  require(plain && fs::exists(run + "/checkpoints/" + name + "/config.json"),
          "{}/latest: names the checkpoint '{}', which is not there", run, name);
  return name;
}

// state.json, whose version and own hash are right.
nlohmann::json read_state(const std::string& path) {
  nlohmann::json json = read_json_file(path);
  JsonObject object(json, path);
  require(object.integer("version", 0, 0, INT64_MAX) == kVersion,
          "{}: not a version of checkpoint that is known, expected {}", path, kVersion);
  const std::string hash = object.text("xxh3_128", "");
  json.erase("xxh3_128");
  require(xxh3_128(json.dump()) == hash, "{}: is altered: it has not the hash that it states",
          path);
  return json;
}

}  // namespace

RunState read_run_state(const std::string& checkpoint) {
  const std::string path = checkpoint + "/" + kState;
  return parse_run_state(JsonObject(read_state(path), path).raw("state"), path + ": state");
}

RunState verify_checkpoint(const std::string& checkpoint) {
  const std::string path = checkpoint + "/" + kState;
  JsonObject object(read_state(path), path);
  const nlohmann::json& files = object.raw("files");
  require(files.is_object(), "{}.files: expected an object", path);
  for (const auto& [name, expected] : files.items()) verify_file(checkpoint + "/" + name, expected);
  return parse_run_state(object.raw("state"), path + ": state");
}

void CheckpointStore::open() {
  entries_.clear();
  const std::string path = path_ + "/checkpoints.json";
  if (!fs::exists(path)) return;
  try {
    read_list(path);
  } catch (const Error& e) {
    fail("{}; the file may be removed: the checkpoints so far are then kept for ever", e.what());
  }
}

void CheckpointStore::read_list(const std::string& path) {
  const nlohmann::json json = read_json_file(path);
  JsonObject object(json, path);
  const nlohmann::json& list = object.raw("checkpoints");
  require(list.is_array(), "{}.checkpoints: expected a list", path);
  for (const nlohmann::json& item : list) {
    JsonObject checkpoint(item, path);
    Entry entry;
    entry.step = checkpoint.integer("step", -1, 0, INT64_MAX);
    entry.name = name_of_step(entry.step);
    if (checkpoint.has("loss")) entry.loss = checkpoint.number("loss", 0, -1e300, 1e300);
    for (const char* leftover : {kPartial, kRemoved}) fs::remove_all(folder(entry.name) + leftover);
    if (fs::exists(folder(entry.name))) entries_.push_back(entry);
  }
}

std::string CheckpointStore::offer(const std::string& broken) const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->name == broken) continue;
    try {
      verify_checkpoint(folder(entry->name));
      return fmt::format("; {} is whole: go on from it with --resume-from {}", entry->name,
                         entry->name);
    } catch (const Error&) {
      continue;
    }
  }
  return "; no other checkpoint is whole";
}

std::optional<std::string> CheckpointStore::choose(const std::string& name) const {
  std::string chosen = full_name(name);
  try {
    if (chosen.empty() && fs::exists(path_ + "/latest")) chosen = read_latest(path_);
    // The process ended between the first checkpoint and its pointer.
    if (chosen.empty() && !entries_.empty()) chosen = entries_.back().name;
    if (chosen.empty()) return std::nullopt;
    const bool plain = chosen.find('/') == std::string::npos;
    require(plain && fs::is_directory(folder(chosen)), "{}: holds no checkpoint '{}'", path_,
            chosen);
    verify_checkpoint(folder(chosen));
  } catch (const Error& e) {
    fail("{}{}", e.what(), offer(chosen));
  }
  return folder(chosen);
}

void CheckpointStore::make_latest(int64_t step) const {
  replace_file(path_ + "/latest", name_of_step(step) + "\n");
}

void CheckpointStore::write_list() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Entry& entry : entries_) {
    nlohmann::json item = {{"step", entry.step}};
    if (entry.loss) item["loss"] = *entry.loss;
    list.push_back(item);
  }
  const nlohmann::json json = {{"checkpoints", list}};
  replace_file(path_ + "/checkpoints.json", json.dump(1) + "\n");
}

// Renamed first: a folder that is half removed must not look like a checkpoint.
void CheckpointStore::remove(const std::string& name) const {
  if (!fs::exists(folder(name))) return;
  const std::string removed = folder(name) + kRemoved;
  fs::remove_all(removed);
  fs::rename(folder(name), removed);
  fs::remove_all(removed);
}

void CheckpointStore::save(const RunState& state, const ModelConfig& config,
                           const Parameters& parameters, const Moments& moments,
                           const Tokenizer* tokenizer, std::optional<double> loss) {
  const std::string name = name_of_step(state.step);
  const auto same_step = [&](const Entry& e) { return e.step == state.step; };
  require(!fs::exists(folder(name)) || std::any_of(entries_.begin(), entries_.end(), same_step),
          "{}: stands in the way of a checkpoint, and is none of this run's", folder(name));
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(), same_step), entries_.end());
  const auto place = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.step > state.step; });
  entries_.insert(place, {name, state.step, loss});
  write_list();
  const std::string beside = folder(name) + kPartial;
  fs::remove_all(beside);
  fs::create_directories(beside);
  try {
    save_model(beside, config, parameters);
    if (tokenizer != nullptr) tokenizer->save(beside);
    write_safetensors(beside + "/optimizer.safetensors", moment_tensors(moments));
    write_state(beside, state);
  } catch (...) {
    fs::remove_all(beside);
    throw;
  }
  remove(name);
  fs::rename(beside, folder(name));
  sync_folder(path_ + "/checkpoints");
  replace_file(path_ + "/latest", name + "\n");
  prune(state.step);
}

void CheckpointStore::note_loss(int64_t step, double loss) {
  for (Entry& e : entries_) {
    if (e.step != step) continue;
    e.loss = loss;
    write_list();
  }
}

void CheckpointStore::prune(int64_t step) {
  const Entry* best = nullptr;
  int64_t n_older = 0;
  for (const Entry& e : entries_) {
    if (e.loss && e.step <= step && (best == nullptr || *e.loss < *best->loss)) best = &e;
    n_older += e.step <= step ? 1 : 0;
  }
  std::vector<Entry> kept;
  for (const Entry& e : entries_) {
    const bool newest = e.step <= step && n_older <= keep_last_;
    n_older -= e.step <= step ? 1 : 0;
    if (newest || &e == best)
      kept.push_back(e);
    else
      remove(e.name);
  }
  if (kept.size() == entries_.size()) return;
  entries_ = std::move(kept);
  write_list();
}

void CheckpointStore::load(Context& context, const std::string& checkpoint, Parameters& parameters,
                           const Moments& moments) {
  load_weights(context, checkpoint, read_model_config(checkpoint), parameters);
  const SafetensorsFile file = SafetensorsFile::open(checkpoint + "/optimizer.safetensors");
  for (const auto& [name, to] : moment_tensors(moments)) {
    const Tensor from = file.tensor(name);
    require(from.dtype() == DType::f32 && from.shape() == to.shape(),
            "{}: '{}' has shape {}, expected {}", file.where(), name, to_string(from.shape()),
            to_string(to.shape()));
    std::memcpy(to.raw(), from.raw(), to.bytes());
  }
}

std::string model_folder(const std::string& path) {
  require(fs::is_directory(path), "{}: no such folder, expected a model or a run", path);
  if (fs::exists(path + "/config.json")) return path;
  require(fs::exists(path + "/latest"),
          "{}: neither a model (config.json) nor a run with a checkpoint (latest)", path);
  return path + "/checkpoints/" + read_latest(path);
}

}  // namespace dcformer
