#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dcformer/model/parameters.h"
#include "dcformer/text/tokenizer.h"
#include "dcformer/train/run_state.h"

namespace dcformer {

/// The checkpoints of a run folder:
///   checkpoints/step-N/   a model folder, with optimizer.safetensors and state.json (the run's
///                         state, and the size and hash of every other file)
///   checkpoints.json      the list of those that this run has written, with validation losses
///   latest                the name of the newest whole one, written last
/// Whatever moment the process ends at, `latest` names a whole checkpoint. Only what the list names
/// is ever removed. One process at a time may use it (FolderLock).
class CheckpointStore {
 public:
  /// Keeps the newest `keep_last` checkpoints and the one of the least validation loss.
  CheckpointStore(std::string run_folder, int64_t keep_last)
      : path_(std::move(run_folder)), keep_last_(keep_last) {}

  /// Reads the list, and removes what an interrupted save or removal has left. Throws Error for a
  /// damaged list.
  void open();

  /// The checkpoint to go on from, whole: `name`, step-N or N, or the newest where it is empty;
  /// none before the first save. Throws Error for one that is truncated, altered or missing, naming
  /// the file, and an older whole one where there is any.
  std::optional<std::string> choose(const std::string& name) const;

  /// Lets `latest` name the checkpoint of a step: the run goes on from there.
  void make_latest(int64_t step) const;

  /// Writes the checkpoint of a step: beside, synced, renamed, `latest` last; then removes what is
  /// no longer kept. `loss` is the validation loss after this step, where it was evaluated.
  void save(const RunState& state, const ModelConfig& config, const Parameters& parameters,
            const Moments& moments, const Tokenizer* tokenizer, std::optional<double> loss);

  /// Removes the checkpoints that are no longer kept once `step` is the newest: older ones, and
  /// those of later steps, which belong to a future that a resumed run has left behind.
  void prune(int64_t step);

  /// Notes the validation loss of a step whose checkpoint, if there is one, was saved before.
  void note_loss(int64_t step, double loss);

  /// Reads a checkpoint's weights and moments back into what exists.
  static void load(Context& context, const std::string& checkpoint, Parameters& parameters,
                   const Moments& moments);

 private:
  struct Entry {
    std::string name;
    int64_t step = 0;
    std::optional<double> loss;
  };

  std::string folder(const std::string& name) const { return path_ + "/checkpoints/" + name; }
  void read_list(const std::string& path);
  void write_list() const;
  void remove(const std::string& name) const;
  std::string offer(const std::string& broken) const;

  std::string path_;
  int64_t keep_last_;
  std::vector<Entry> entries_;  // by step
};

/// The state of a checkpoint, by its state.json alone. Throws Error where that is altered.
RunState read_run_state(const std::string& checkpoint);

/// The state of a checkpoint whose files all have the sizes and hashes that it states. Throws Error
/// naming the file that has not.
RunState verify_checkpoint(const std::string& checkpoint);

/// The model folder that a path means: itself, or the newest checkpoint of a run folder (which
/// names it in its file `latest`). Throws Error saying what was looked for.
std::string model_folder(const std::string& path);

}  // namespace dcformer
