#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "dcformer/train/metrics_log.h"

namespace dcformer {

/// A TensorBoard event file: the figures of a run from one step on. Every start of a run begins a
/// file of its own, and a reader takes a run folder's files in the order of their names.
class EventFile {
 public:
  /// Begins `events.out.tfevents.SECONDS.HOST.PID` in the folder, whose name sorts after those that
  /// are there. Says that the run goes on with `first_step`: a reader drops what earlier files hold
  /// of that step and later ones, which are done again. Throws Error naming the file.
  EventFile(const std::string& folder, int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }

  /// Writes tags with their values, as of now, in one record. Those that are not finite as 32-bit
  /// floats are left out. Throws Error when the record cannot be written whole.
  void add(int64_t step, std::span<const std::pair<std::string, double>> scalars);

  /// Writes an update: tags `learning/…` and `perf/…`. One that was skipped has no norm after
  /// clipping.
  void write(const StepMetrics& metrics);
  /// Writes an evaluation: tags `evaluation/…`.
  void write(int64_t step, const Evaluation& evaluation);

  /// Waits until all records are on the disk.
  void sync() const;

 private:
  explicit EventFile(std::string path);

  std::string path_;
  int fd_ = -1;
};

}  // namespace dcformer
