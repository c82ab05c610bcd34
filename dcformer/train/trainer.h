#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dcformer/data/rows.h"
#include "dcformer/model/language_model.h"
#include "dcformer/text/tokenizer.h"
#include "dcformer/train/prepare_data.h"
#include "dcformer/train/run_config.h"
#include "dcformer/train/run_folder.h"

namespace dcformer {

/// One update's figures, a line of metrics.jsonl.
struct StepMetrics {
  /// The update's number, from 1.
  int64_t step = 0;
  /// Nats a token.
  double loss = 0;
  /// Before clipping.
  double gradient_norm = 0;
  /// The rate of this update.
  double learning_rate = 0;
  double seconds = 0;
  double tokens_per_second = 0;
};

/// The loss over the whole validation set.
struct Validation {
  double nats_per_token = 0;
  int64_t n_token = 0;
  /// Set where the rows come from text whose bytes are known.
  std::optional<double> bits_per_byte;
};

struct TrainerOptions {
  /// Continue the run in the folder.
  bool resume = false;
  /// A model folder whose weights the run starts from.
  std::string init;
  /// Stop once this many updates are done in all; 0: at the schedule's end.
  int64_t stop_after = 0;
};

/// A run: model, data, optimizer, and the folder that it is kept in.
class Trainer {
 public:
  /// Prepares everything: a new run in an empty folder, or the continuation of one. Throws Error
  /// for whatever is wrong with the run file, the data or the folder.
  Trainer(Context& context, RunConfig config, const std::string& folder,
          const TrainerOptions& options);

  /// Trains until the end, until `stop_after`, or until `interrupted()` is true after a step; then
  /// saves. `on_step` and `on_validation` are told of each.
  void run(const std::function<void(const StepMetrics&)>& on_step,
           const std::function<void(int64_t step, const Validation&)>& on_validation,
           const std::function<bool()>& interrupted);

  /// Evaluates the validation set; none where the run has none.
  std::optional<Validation> validate();

  int64_t step() const { return state_.step; }
  bool finished() const { return state_.step >= config_.train.steps; }
  const RunConfig& config() const { return config_; }
  const LanguageModel& model() const { return *model_; }
  const TrainingData& data() const { return data_; }
  DType dtype() const { return state_.dtype; }

 private:
  StepMetrics update();
  /// Adds the gradients of one pass; returns Σ loss.
  double accumulate(int64_t first_position, float scale);
  int64_t count_targets(int64_t first_position, int64_t n_row);
  void apply(double learning_rate, double gradient_scale);
  void save();

  Context& context_;
  RunConfig config_;
  RunFolder folder_;
  TrainerOptions options_;
  TrainingData data_;
  RowOrder order_{1, false, 0};
  std::unique_ptr<LanguageModel> model_;
  Moments moments_;
  RunState state_;
  int64_t saved_step_ = -1;
};

}  // namespace dcformer
