#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dcformer/model/parameters.h"
#include "dcformer/text/tokenizer.h"

namespace dcformer {

/// Where a run stands.
struct RunState {
  /// Updates done, and rows taken from the data.
  int64_t step = 0;
  int64_t position = 0;
  DType dtype = DType::f32;
};

/// The moments of the optimizer, flat in registry order like the parameters' arena.
struct Moments {
  Tensor first;
  Tensor second;
};

/// The folder of a run:
///   run.json                the run file with its overrides
///   metrics.jsonl           a line a step
///   checkpoints/step-N/     a model folder, with optimizer.safetensors and state.json
///   latest                  the name of the newest whole checkpoint, written last
class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }

  /// Makes the folder of a new run. Throws Error when it holds anything already.
  void create(const nlohmann::json& run) const;
  /// Throws Error unless the folder holds a run of the same run file, naming what differs.
  void require_same_run(const nlohmann::json& run) const;

  /// Drops the lines of metrics.jsonl after `step`: those of updates that a resumed run does again.
  void trim_metrics(int64_t step) const;

  /// The folder of the newest checkpoint; none: the run has not saved yet.
  std::optional<std::string> latest() const;

  /// Saves a checkpoint: written beside, renamed, then the pointer; older ones but the last are
  /// removed.
  void save(const RunState& state, const ModelConfig& config, const Parameters& parameters,
            const Moments& moments, const Tokenizer* tokenizer) const;
  /// Reads a checkpoint back into what exists.
  RunState load(Context& context, const std::string& checkpoint, Parameters& parameters,
                const Moments& moments) const;

 private:
  void prune(const std::string& newest) const;

  std::string path_;
};

/// The model folder that a path means: itself, or the newest checkpoint of a run folder (which
/// names it in its file `latest`). Throws Error saying what was looked for.
std::string model_folder(const std::string& path);

/// Where the run stood at a checkpoint (its state.json).
RunState read_run_state(const std::string& checkpoint);

}  // namespace dcformer
