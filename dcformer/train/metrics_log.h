#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>

#include "dcformer/train/evaluation.h"

namespace dcformer {

/// One update's figures, a line of metrics.jsonl.
struct StepMetrics {
  /// The update's number, from 1.
  int64_t step = 0;
  /// Nats a token.
  double loss = 0;
  /// Before clipping, and after it.
  double gradient_norm = 0;
  double clipped_gradient_norm = 0;
  /// Of all parameters after the update.
  double parameter_norm = 0;
  /// The rate of this update.
  double learning_rate = 0;
  double seconds = 0;
  double tokens_per_second = 0;
  /// The loss or the gradient was not finite: the parameters are as before.
  bool skipped = false;
};

/// Calls f(step, line, json) for each line of a text of JSON lines with a `step` of at most `last`.
/// Passed over are lines that are no such JSON, as one that the end of the process cut short, and
/// those that do not go on in ascending order.
using StepLineVisitor =
    std::function<void(int64_t step, const std::string& line, const nlohmann::json& json)>;
void for_each_step_line(std::istream& text, int64_t last, const StepLineVisitor& f);

/// A file of JSON lines, each with its `step`, in ascending order.
class StepLines {
 public:
  explicit StepLines(std::string path) : path_(std::move(path)) {}
  ~StepLines();
  StepLines(const StepLines&) = delete;
  StepLines& operator=(const StepLines&) = delete;

  const std::string& path() const { return path_; }

  /// Opens the file to append to what it says of the steps up to `step`; later lines, a second line
  /// of a step, and one that the end of the process cut short, are dropped. Returns the number of
  /// lines.
  int64_t open(int64_t step);
  /// Throws Error when the line cannot be written whole.
  void append(const nlohmann::ordered_json& line) const;
  /// Waits until all lines are on the disk.
  void sync() const;

 private:
  std::string path_;
  int fd_ = -1;
};

/// What a run writes down as it goes: `metrics.jsonl`, a line for each step, and
/// `evaluations.jsonl`, a line for each evaluation, each once whatever happened in between.
class MetricsLog {
 public:
  explicit MetricsLog(const std::string& run_folder)
      : steps_(run_folder + "/metrics.jsonl"), evaluations_(run_folder + "/evaluations.jsonl") {}

  /// Opens both to go on after `step` and `evaluated_step`. Warns of steps that are missing.
  void open(int64_t step, int64_t evaluated_step);

  void write(const StepMetrics& metrics) const;
  void write(int64_t step, const Evaluation& evaluation) const;
  void sync() const;

 private:
  StepLines steps_;
  StepLines evaluations_;
};

}  // namespace dcformer
