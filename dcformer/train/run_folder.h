#pragma once

#include <optional>
#include <string>

#include "dcformer/base/folder_lock.h"
#include "dcformer/train/run_config.h"

namespace dcformer {

/// The folder of a run:
///   run.json            the run file with its overrides
///   metrics.jsonl, evaluations.jsonl   a line a step, and an evaluation (MetricsLog)
///   events.out.tfevents.*   the same for TensorBoard (EventFile)
///   report.svg          its curves (write_report)
///   checkpoints/, checkpoints.json, latest   (CheckpointStore)
///   lock                held by the process that trains (FolderLock)
class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  /// The path of its run file. Throws Error where there is none, and so no run to resume.
  std::string run_file() const;

  /// Throws Error unless a new run can begin there: the folder is absent, empty, or holds what a
  /// start that did not get as far as run.json has left; and it can be written, or made.
  void require_new() const;
  /// Makes the folder of a new run and locks it.
  void create(const RunConfig& run);
  /// Locks the folder of a run that exists, and returns its run file. Throws Error where there is
  /// none.
  RunConfig open();
  /// Replaces the run file.
  void write_run_file(const RunConfig& run) const;

 private:
  std::string path_;
  std::optional<FolderLock> lock_;
};

}  // namespace dcformer
