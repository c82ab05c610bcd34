#include "dcformer/train/trainer.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <numbers>

#include "dcformer/model/checkpoint.h"
#include "dcformer/ops/adamw.h"
#include "dcformer/ops/choose_dtype.h"

namespace dcformer {
namespace {

/// Rows as one flat batch: the ids of all but the last of each row, and their successors as
/// targets.
struct RowBatch {
  std::vector<int32_t> ids;
  std::vector<int32_t> targets;
  SequenceBatch sequences;

  void add(std::span<const int32_t> row) {
    ids.insert(ids.end(), row.begin(), row.end() - 1);
    targets.insert(targets.end(), row.begin() + 1, row.end());
    sequences.append(static_cast<int64_t>(row.size()) - 1);
  }
};

ModelConfig model_config(const RunConfig& config, const TrainingData& data) {
  nlohmann::json json = config.model;
  if (!json.contains("vocab_size") && data.tokenizer)
    json["vocab_size"] = data.tokenizer->vocab_size();
  const ModelConfig model = parse_model_config(json, "model", UnknownKeys::error);
  require(!data.tokenizer || data.tokenizer->vocab_size() <= model.vocab_size,
          "model.vocab_size: {} is less than the tokenizer's {}", model.vocab_size,
          data.tokenizer ? data.tokenizer->vocab_size() : 0);
  require(data.training.longest() <= model.block_size,
          "model.block_size: {} is less than the rows' {} tokens", model.block_size,
          data.training.longest());
  data.training.check_vocabulary(model.vocab_size, "training data");
  return model;
}

}  // namespace

Trainer::Trainer(Context& context, RunConfig config, const std::string& folder,
                 const TrainerOptions& options)
    : context_(context), config_(std::move(config)), folder_(folder), options_(options) {
  std::optional<std::string> checkpoint;
  if (options_.resume) {
    folder_.require_same_run(config_.json);
    checkpoint = folder_.latest();
  }
  data_ = prepare_data(context_, config_.data, checkpoint);
  const ModelConfig model = model_config(config_, data_);
  order_ = RowOrder(data_.training.n_row(), config_.data.shuffle, config_.data.seed);
  state_.dtype = checkpoint ? read_run_state(*checkpoint).dtype
                            : choose_compute_dtype(context_, config_.train.dtype);
  Parameters parameters = Parameters::for_training(
      context_, parameter_specs(model, config_.train.init_std), state_.dtype);
  moments_.first = Tensor::zeros(context_, DType::f32, parameters.values().shape());
  moments_.second = Tensor::zeros(context_, DType::f32, parameters.values().shape());
  if (checkpoint) {
    state_ = folder_.load(context_, *checkpoint, parameters, moments_);
    saved_step_ = state_.step;
    spdlog::info("resuming after step {}", state_.step);
  } else if (!options_.init.empty()) {
    load_weights(context_, options_.init, parameters);
  } else {
    parameters.initialise(context_, config_.train.seed);
  }
  model_ = std::make_unique<LanguageModel>(model, std::move(parameters));
  if (options_.resume) {
    folder_.trim_metrics(state_.step);
  } else {
    folder_.create(config_.json);
  }
}

int64_t Trainer::count_targets(int64_t first_position, int64_t n_row) {
  int64_t n = 0;
  for (int64_t i = 0; i < n_row; ++i)
    n += static_cast<int64_t>(data_.training.row(order_.at(first_position + i)).size()) - 1;
  return n;
}

double Trainer::accumulate(int64_t first_position, float scale) {
  RowBatch batch;
  for (int64_t i = 0; i < config_.train.batch_size; ++i)
    batch.add(data_.training.row(order_.at(first_position + i)));
  return model_->loss_and_gradients(context_, batch.ids, batch.targets, batch.sequences, scale)
      .loss;
}

void Trainer::apply(double learning_rate, double gradient_scale) {
  const TrainConfig& t = config_.train;
  AdamWStep step{learning_rate,  t.beta1,         t.beta2,       t.eps,
                 t.weight_decay, state_.step + 1, gradient_scale};
  Parameters& parameters = model_->parameters();
  const auto range = [&](const Tensor& arena, size_t begin, size_t n) {
    return arena.span<float>().subspan(begin, n);
  };
  const float* origin = parameters.values().data<float>();
  for (const Parameter& p : parameters.all()) {
    const auto begin = static_cast<size_t>(p.value.data<float>() - origin);
    const auto n = static_cast<size_t>(p.value.numel());
    const bool decays = t.decay_mask == "all" || p.spec.shape.rank() >= 2;
    step.weight_decay = decays ? t.weight_decay : 0;
    adamw(context_, range(parameters.values(), begin, n), range(parameters.gradients(), begin, n),
          range(moments_.first, begin, n), range(moments_.second, begin, n), step);
  }
  parameters.refresh(context_);
}

StepMetrics Trainer::update() {
  const auto begin = std::chrono::steady_clock::now();
  const TrainConfig& t = config_.train;
  StepMetrics metrics;
  metrics.step = state_.step + 1;
  metrics.learning_rate = learning_rate_at(t, state_.step);
  const int64_t n_row = t.batch_size * t.accumulation;
  const int64_t n_target = count_targets(state_.position, n_row);
  model_->parameters().zero_gradients(context_);
  double loss = 0;
  for (int64_t pass = 0; pass < t.accumulation; ++pass)
    loss += accumulate(state_.position + pass * t.batch_size, 1.0f / static_cast<float>(n_target));
  metrics.loss = loss / static_cast<double>(n_target);
  metrics.gradient_norm =
      std::sqrt(sum_of_squares(context_, model_->parameters().gradients().span<float>()));
  require(std::isfinite(metrics.loss) && std::isfinite(metrics.gradient_norm),
          "step {}: the loss is {} and the gradient's norm {}; training stops, the last checkpoint "
          "stays",
          metrics.step, metrics.loss, metrics.gradient_norm);
  const bool clipped = t.clip_norm > 0 && metrics.gradient_norm >= t.clip_norm;
  apply(metrics.learning_rate, clipped ? t.clip_norm / metrics.gradient_norm : 1.0);
  state_.step += 1;
  state_.position += n_row;
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  metrics.tokens_per_second = static_cast<double>(n_target) / metrics.seconds;
  return metrics;
}

std::optional<Validation> Trainer::validate() {
  if (!data_.validation) return std::nullopt;
  const RowSet& rows = *data_.validation;
  CrossEntropySum total;
  for (int64_t r = 0; r < rows.n_row(); r += config_.train.batch_size) {
    RowBatch batch;
    for (int64_t i = r; i < std::min(rows.n_row(), r + config_.train.batch_size); ++i)
      batch.add(rows.row(i));
    const CrossEntropySum sum = model_->loss(context_, batch.ids, batch.targets, batch.sequences);
    total.loss += sum.loss;
    total.n_target += sum.n_target;
  }
  Validation validation;
  validation.n_token = total.n_target;
  validation.nats_per_token = total.loss / static_cast<double>(total.n_target);
  validation.bits_per_byte =
      total.loss / (std::numbers::ln2 * static_cast<double>(data_.validation_bytes));
  return validation;
}

void Trainer::save() {
  if (saved_step_ == state_.step) return;
  folder_.save(state_, model_->config(), model_->parameters(), moments_, data_.tokenizer.get());
  saved_step_ = state_.step;
}

void Trainer::run(const std::function<void(const StepMetrics&)>& on_step,
                  const std::function<void(int64_t, const Validation&)>& on_validation,
                  const std::function<bool()>& interrupted) {
  const TrainConfig& t = config_.train;
  const int64_t end = options_.stop_after > 0 ? std::min(t.steps, options_.stop_after) : t.steps;
  const auto due = [&](int64_t every) { return every > 0 && state_.step % every == 0; };
  bool stopped = false;
  std::ofstream log(folder_.metrics_path(), std::ios::app);
  require(log.good(), "{}: cannot write", folder_.metrics_path());
  while (state_.step < end && !stopped) {
    const StepMetrics m = update();
    const nlohmann::ordered_json line = {{"step", m.step},
                                         {"loss", m.loss},
                                         {"gradient_norm", m.gradient_norm},
                                         {"learning_rate", m.learning_rate},
                                         {"seconds", m.seconds},
                                         {"tokens_per_second", m.tokens_per_second}};
    log << line.dump() << std::endl;
    require(log.good(), "{}: cannot write", folder_.metrics_path());
    on_step(m);
    stopped = interrupted();
    if (due(t.save_every)) save();
    if (due(t.evaluate_every) && state_.step < end && !stopped)
      if (const auto validation = validate()) on_validation(state_.step, *validation);
  }
  save();
}

}  // namespace dcformer
