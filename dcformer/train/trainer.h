#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dcformer/data/rows.h"
#include "dcformer/model/language_model.h"
#include "dcformer/text/tokenizer.h"
#include "dcformer/train/checkpoint_store.h"
#include "dcformer/train/evaluation.h"
#include "dcformer/train/event_file.h"
#include "dcformer/train/metrics_log.h"
#include "dcformer/train/prepare_data.h"
#include "dcformer/train/run_config.h"
#include "dcformer/train/run_folder.h"

namespace dcformer {

/// What to do with an update whose loss or gradient is not finite. An evaluation that is not finite
/// stops too, or is warned about.
enum class OnNan : uint8_t { stop, skip };

/// With OnNan::skip: the most updates in a row that are skipped.
constexpr int64_t kMostSkippedInARow = 10;

struct TrainerOptions {
  /// Continue the run in the folder.
  bool resume = false;
  /// A model folder whose weights the run starts from.
  std::string init = {};
  /// Stop once this many updates are done in all; 0: at the schedule's end.
  int64_t stop_after = 0;
  /// With `resume`: the checkpoint to go on from; "": the newest.
  std::string resume_from = {};
  OnNan on_nan = OnNan::stop;
};

/// What a caller is told, and asked, while a run goes on. All may be empty.
struct TrainerHooks {
  std::function<void(const StepMetrics&)> on_step = {};
  std::function<void(int64_t step, const Evaluation&)> on_evaluation = {};
  /// True: stop as soon as the running step is done.
  std::function<bool()> interrupted = {};
};

/// A run: model, data, optimizer, and the folder that it is kept in.
class Trainer {
 public:
  /// Prepares everything: a new run in an empty folder, or the continuation of one. Throws Error
  /// for whatever is wrong with the run file, the data or the folder; also when another process
  /// works in the folder, or the run file differs from the run's in what cannot change.
  Trainer(Context& context, RunConfig config, const std::string& folder,
          const TrainerOptions& options);

  /// Trains until the end, until `stop_after`, or until it is interrupted; then saves. After an
  /// update that was skipped nothing is saved, and the checkpoint before stays the newest. Throws
  /// Error when a file cannot be written, and for values that are not finite; the last checkpoint
  /// is then whole.
  void run(const TrainerHooks& hooks);

  /// The validation set's figures after the steps so far; none where the run has no such set, or
  /// `interrupted()` is true before the end.
  std::optional<Evaluation> evaluation(const std::function<bool()>& interrupted = {});

  int64_t step() const { return state_.step; }
  /// The step of the newest checkpoint; -1: there is none.
  int64_t saved_step() const { return saved_step_; }
  int64_t n_skipped() const { return state_.n_skipped; }
  bool finished() const { return state_.step >= config_.train.steps; }
  const RunConfig& config() const { return config_; }
  const LanguageModel& model() const { return *model_; }
  const TrainingData& data() const { return data_; }
  DType dtype() const { return state_.dtype; }

 private:
  std::optional<std::string> open_run();
  void prepare_model(const std::optional<std::string>& checkpoint);
  StepMetrics update();
  /// The rows of the next update, and their numbers in the data.
  struct UpdateRows {
    std::vector<int64_t> numbers;
    std::vector<std::span<const int32_t>> rows;
    int64_t n_target = 0;
  };
  UpdateRows next_rows();
  /// Adds up the gradients of an update's mean loss; returns that loss.
  double accumulate(const UpdateRows& rows);
  void apply(double learning_rate, double gradient_scale);
  void skip(const StepMetrics& metrics, const UpdateRows& rows);
  bool evaluation_is_due() const;
  void evaluate_and_log(const TrainerHooks& hooks);
  /// Opens the logs to go on after the step that the run stands at.
  void go_on_writing();
  /// Draws the report, at most every half minute unless it must be `now`.
  void draw_report(bool now);
  void save();

  Context& context_;
  RunConfig config_;
  RunFolder folder_;
  TrainerOptions options_;
  CheckpointStore checkpoints_;
  MetricsLog log_;
  std::optional<EventFile> events_;
  static constexpr std::chrono::seconds kReportInterval{30};
  std::chrono::steady_clock::time_point report_due_ =
      std::chrono::steady_clock::now() + kReportInterval;
  TrainingData data_;
  RowOrder order_{1, false, 0};
  std::unique_ptr<LanguageModel> model_;
  Moments moments_;
  RunState state_;
  int64_t saved_step_ = -1;
  bool run_file_changed_ = false;
  std::optional<Evaluation> last_evaluation_;
};

}  // namespace dcformer
