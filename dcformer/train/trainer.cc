#include "dcformer/train/trainer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "dcformer/model/checkpoint.h"
#include "dcformer/ops/adamw.h"
#include "dcformer/ops/choose_dtype.h"
#include "dcformer/train/not_finite.h"
#include "dcformer/train/report.h"
#include "dcformer/train/row_batch.h"
#include "dcformer/train/run_differences.h"

namespace dcformer {
namespace {

ModelConfig model_config(const RunConfig& config, const TrainingData& data) {
  const ModelConfig model = parse_model_section(
      config.model, "model",
      data.tokenizer ? std::optional<int64_t>(data.tokenizer->vocab_size()) : std::nullopt);
  require(!data.tokenizer || data.tokenizer->vocab_size() <= model.vocab_size,
          "model.vocab_size: {} is less than the tokenizer's {}", model.vocab_size,
          data.tokenizer ? data.tokenizer->vocab_size() : 0);
  const auto check = [&](const RowSet& rows, const char* where) {
    require(rows.longest() <= model.block_size,
            "model.block_size: {} is less than the {} tokens of a row of the {}", model.block_size,
            rows.longest(), where);
    rows.check_vocabulary(model.vocab_size, where);
  };
  check(data.training, "training data");
  if (data.validation) check(*data.validation, "validation data");
  return model;
}

bool is_due(int64_t every, int64_t step) { return every > 0 && step > 0 && step % every == 0; }

}  // namespace

Trainer::Trainer(Context& context, RunConfig config, const std::string& folder,
                 const TrainerOptions& options)
    : context_(context),
      config_(std::move(config)),
      folder_(folder),
      options_(options),
      checkpoints_(folder, config_.train.keep_last),
      log_(folder) {
  std::optional<std::string> checkpoint;
  if (options_.resume)
    checkpoint = open_run();
  else
    folder_.require_new();
  data_ = prepare_data(context_, config_.data, checkpoint);
  order_ = RowOrder(data_.training.n_row(), config_.data.shuffle, config_.data.seed);
  prepare_model(checkpoint);
  if (!options_.resume)
    folder_.create(config_);
  else if (run_file_changed_)
    folder_.write_run_file(config_);
}

// The run in the folder, with what has changed in its run file said or refused; the checkpoint to
// go on from.
std::optional<std::string> Trainer::open_run() {
  const RunConfig before = folder_.open();
  for (const RunDifference& d : run_differences(before, config_)) {
    require(d.allowed,
            "{}: {}, which a run cannot change; begin a new one (--init takes these weights)",
            folder_.path(), d.text());
    spdlog::info("changed: {}", d.text());
    run_file_changed_ = true;
  }
  checkpoints_.open();
  return checkpoints_.choose(options_.resume_from);
}

void Trainer::prepare_model(const std::optional<std::string>& checkpoint) {
  const ModelConfig model = model_config(config_, data_);
  const std::string data_hash = data_.hash();
  if (checkpoint) {
    state_ = read_run_state(*checkpoint);
    require(config_.train.steps >= state_.step,
            "train.steps: {} is less than the {} steps that are done", config_.train.steps,
            state_.step);
    require(state_.data_hash == data_hash,
            "{}: the data are not those that the run began with (their hash differs)",
            folder_.path());
  } else {
    state_.dtype = choose_compute_dtype(context_, config_.train.dtype);
    state_.data_hash = data_hash;
  }
  Parameters parameters = Parameters::for_training(
      context_, parameter_specs(model, config_.train.init_std), state_.dtype);
  moments_.first = Tensor::zeros(context_, DType::f32, parameters.values().shape());
  moments_.second = Tensor::zeros(context_, DType::f32, parameters.values().shape());
  if (checkpoint) {
    CheckpointStore::load(context_, *checkpoint, parameters, moments_);
    saved_step_ = state_.step;
    // Ended within the last save's removals. Somebody who goes back keeps all until the next save.
    if (options_.resume_from.empty()) checkpoints_.prune(state_.step);
    spdlog::info("resuming after step {}", state_.step);
  } else if (!options_.init.empty()) {
    load_weights(context_, options_.init, model, parameters);
  } else {
    parameters.initialise(context_, config_.train.seed);
  }
  if (options_.resume && !checkpoint)
    spdlog::info("the run has no checkpoint yet: starting from its beginning");
  model_ = std::make_unique<LanguageModel>(model, std::move(parameters));
}

Trainer::UpdateRows Trainer::next_rows() {
  UpdateRows update;
  for (int64_t i = 0; i < config_.train.batch_size * config_.train.accumulation; ++i) {
    update.numbers.push_back(order_.at(state_.position + i));
    update.rows.push_back(data_.training.row(update.numbers.back()));
    update.n_target += static_cast<int64_t>(update.rows.back().size()) - 1;
  }
  return update;
}

double Trainer::accumulate(const UpdateRows& update) {
  model_->parameters().zero_gradients(context_);
  LanguageModel::TrainingPass pass;
  pass.scale = 1.0f / static_cast<float>(update.n_target);
  pass.dropout = {config_.train.seed, state_.step, 0};
  pass.checkpoint_activations = config_.train.activation_checkpointing;
  const auto batch_size = static_cast<size_t>(config_.train.batch_size);
  double loss = 0;
  for (size_t first = 0; first < update.rows.size(); first += batch_size) {
    RowBatch batch;
    for (size_t i = first; i < first + batch_size; ++i) batch.add(update.rows[i]);
    loss +=
        model_->loss_and_gradients(context_, batch.ids, batch.targets, batch.sequences, pass).loss;
    pass.dropout.first_token += batch.sequences.n_token();
  }
  return loss / static_cast<double>(update.n_target);
}

void Trainer::apply(double learning_rate, double gradient_scale) {
  const TrainConfig& t = config_.train;
  const int64_t number = state_.step + 1 - state_.n_skipped;
  AdamWStep step{learning_rate, t.beta1, t.beta2, t.eps, t.weight_decay, number, gradient_scale};
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

void Trainer::skip(const StepMetrics& metrics, const UpdateRows& rows) {
  const std::string what = fmt::format(
      "step {}: the loss is {} and the gradient's norm {}; {}", metrics.step, metrics.loss,
      metrics.gradient_norm, locate_not_finite(context_, *model_, rows.numbers, rows.rows));
  require(options_.on_nan == OnNan::skip,
          "{}; training stops, the last checkpoint stays (--on-nan skip leaves such updates out)",
          what);
  require(
      state_.n_skipped_in_a_row < kMostSkippedInARow,
      "{}; {} updates in a row were skipped before it, training stops, the last checkpoint stays",
      what, state_.n_skipped_in_a_row);
  spdlog::warn("{}; skipped", what);
  ++state_.n_skipped;
  ++state_.n_skipped_in_a_row;
}

StepMetrics Trainer::update() {
  const auto begin = std::chrono::steady_clock::now();
  const TrainConfig& t = config_.train;
  const UpdateRows rows = next_rows();
  Parameters& parameters = model_->parameters();
  StepMetrics m;
  m.step = state_.step + 1;
  m.learning_rate = learning_rate_at(t, state_.step);
  m.loss = accumulate(rows);
  m.gradient_norm = std::sqrt(sum_of_squares(context_, parameters.gradients().span<float>()));
  m.skipped = !std::isfinite(m.loss) || !std::isfinite(m.gradient_norm);
  if (m.skipped) {
    skip(m, rows);
  } else {
    const bool clips = t.clip_norm > 0 && m.gradient_norm >= t.clip_norm;
    m.clipped_gradient_norm = clips ? t.clip_norm : m.gradient_norm;
    apply(m.learning_rate, clips ? t.clip_norm / m.gradient_norm : 1.0);
    state_.n_skipped_in_a_row = 0;
  }
  m.parameter_norm = std::sqrt(sum_of_squares(context_, parameters.values().span<float>()));
  state_.step += 1;
  state_.position += static_cast<int64_t>(rows.rows.size());
  m.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  m.tokens_per_second = static_cast<double>(rows.n_target) / m.seconds;
  return m;
}

std::optional<Evaluation> Trainer::evaluation(const std::function<bool()>& interrupted) {
  if (!data_.validation) return std::nullopt;
  if (!last_evaluation_ || state_.evaluated_step != state_.step)
    return evaluate(context_, *model_, *data_.validation, config_.train.batch_size,
                    data_.validation_bytes, interrupted);
  return last_evaluation_;
}

bool Trainer::evaluation_is_due() const {
  const bool now = is_due(config_.train.evaluate_every, state_.step) || finished();
  return data_.validation && now && state_.evaluated_step != state_.step;
}

void Trainer::evaluate_and_log(const TrainerHooks& hooks) {
  const auto result = evaluation(hooks.interrupted);
  if (!result) return;
  const bool finite = std::isfinite(result->loss);
  if (!finite) {
    const std::string what =
        fmt::format("step {}: the validation loss is {}", state_.step, result->loss);
    require(options_.on_nan == OnNan::skip,
            "{}; training stops, the last checkpoint stays (--on-nan skip goes on)", what);
    spdlog::warn("{}", what);
  }
  go_on_writing();
  last_evaluation_ = result;
  state_.evaluated_step = state_.step;
  log_.write(state_.step, *result);
  events_->write(state_.step, *result);
  if (finite && saved_step_ == state_.step) checkpoints_.note_loss(state_.step, result->loss);
  if (hooks.on_evaluation) hooks.on_evaluation(state_.step, *result);
}

// The log first: a checkpoint's steps all have their lines.
void Trainer::save() {
  if (saved_step_ == state_.step) return;
  if (state_.n_skipped_in_a_row > 0) {
    spdlog::warn("step {}: not saved, since its update was skipped; {}", state_.step,
                 saved_step_ < 0 ? std::string("there is no checkpoint yet")
                                 : fmt::format("the checkpoint of step {} stays", saved_step_));
    return;
  }
  go_on_writing();
  log_.sync();
  events_->sync();
  const bool evaluated = last_evaluation_ && state_.evaluated_step == state_.step &&
                         std::isfinite(last_evaluation_->loss);
  checkpoints_.save(state_, model_->config(), model_->parameters(), moments_, data_.tokenizer.get(),
                    evaluated ? std::optional(last_evaluation_->loss) : std::nullopt);
  saved_step_ = state_.step;
}

// Before anything is written: what somebody starts and does not go on with leaves the run as it
// was.
void Trainer::go_on_writing() {
  if (events_) return;
  if (!options_.resume_from.empty()) checkpoints_.make_latest(state_.step);
  log_.open(state_.step, state_.evaluated_step);
  events_.emplace(folder_.path(), state_.step + 1);
}

void Trainer::draw_report(bool now) {
  const auto time = std::chrono::steady_clock::now();
  if (!now && time < report_due_) return;
  write_report(folder_.path());
  // Drawing reads the whole log: of a long run it takes at most a fiftieth of the time.
  const auto done = std::chrono::steady_clock::now();
  report_due_ =
      done + std::max<std::chrono::steady_clock::duration>(kReportInterval, 50 * (done - time));
}

void Trainer::run(const TrainerHooks& hooks) {
  const TrainConfig& t = config_.train;
  const int64_t end = options_.stop_after > 0 ? std::min(t.steps, options_.stop_after) : t.steps;
  const auto interrupted = [&] { return hooks.interrupted && hooks.interrupted(); };
  while (true) {
    if (evaluation_is_due() && !interrupted()) evaluate_and_log(hooks);
    const bool last = state_.step >= end || interrupted();
    if (last || is_due(t.save_every, state_.step)) save();
    if (last) break;
    go_on_writing();
    const StepMetrics m = update();
    log_.write(m);
    events_->write(m);
    draw_report(false);
    if (hooks.on_step) hooks.on_step(m);
  }
  draw_report(true);
}

}  // namespace dcformer
