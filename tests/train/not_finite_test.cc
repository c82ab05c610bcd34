#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "dcformer/io/json_file.h"
#include "dcformer/io/safetensors.h"
#include "tests/io/expect_error.h"
#include "tests/train/small_training.h"

namespace dcformer {
namespace {

using test::run_once;
using test::small_run;
using test::TemporaryFolder;
using test::with_its_json;

/// Rows of ids of which row 2 alone has the id 7, whose embedding is no number.
struct FaultyRows {
  explicit FaultyRows(Context& context) {
    config = small_run("no text", "f32", 1);
    config.model["vocab_size"] = 12;
    config.data.text.clear();
    config.data.rows = folder / "rows.safetensors";
    config.data.shuffle = false;
    config.train.batch_size = 2;
    config.train.steps = 6;
    config.train.save_every = 1;
    config = with_its_json(config);
    const Tensor rows = Tensor::empty(context, DType::i32, {6, 9});
    for (int64_t i = 0; i < rows.numel(); ++i)
      rows.data<int32_t>()[i] = static_cast<int32_t>(i % 5);
    rows.data<int32_t>()[2 * 9 + 3] = 7;
    write_safetensors(config.data.rows, {{"rows", rows}});
    // The model of a first run, one value changed.
    RunConfig one = config;
    one.train.steps = 1;
    run_once(context, one, folder / "first", {});
    init = model_folder(folder / "first");
    faulty = folder / "faulty";
    test::write_changed_model(context, init, faulty,
                              [](const std::string& name, std::span<float> values) {
                                if (name == "tok_embeddings.weight") values[7 * 32] = NAN;
                              });
  }
  TemporaryFolder folder;
  RunConfig config;
  std::string init;
  std::string faulty;
};

TEST(NotFinite, StopsAndNamesStepRowsAndPlace) {
  Context context(2);
  const FaultyRows problem(context);
  const std::string run = problem.folder / "run";
  test::expect_error(
      [&] {
        run_once(context, problem.config, run, {false, problem.faulty, 0});
      },
      {"step 2: the loss is nan", "row 2", "tok_embeddings", "--on-nan skip"});
  // The checkpoint of step 1 is whole, and the only one.
  EXPECT_EQ(verify_checkpoint(model_folder(run)).step, 1);
  // Once more from there: the same.
  test::expect_error([&] { run_once(context, problem.config, run, {true, "", 0}); }, {"step 2: "});
}

TEST(NotFinite, SkipsAndCounts) {
  Context context(2);
  const FaultyRows problem(context);
  TrainerOptions options{false, problem.faulty, 0};
  options.on_nan = OnNan::skip;
  const std::string run = problem.folder / "run";
  Trainer trainer(context, problem.config, run, options);
  const auto metrics = test::run(trainer);
  ASSERT_EQ(metrics.size(), 6u);
  // Rows 2 and 3 are those of steps 2 and 5.
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(metrics[i].skipped, i == 1 || i == 4) << i;
  EXPECT_EQ(trainer.n_skipped(), 2);
  EXPECT_EQ(verify_checkpoint(model_folder(run)).n_skipped, 2);
  EXPECT_EQ(verify_checkpoint(model_folder(run)).n_skipped_in_a_row, 0);
}

TEST(NotFinite, SkipsAtMostTenInARow) {
  Context context(2);
  const FaultyRows problem(context);
  RunConfig config = problem.config;
  config.train.steps = 30;
  // All rows in one update: none is without the fault.
  config.train.batch_size = 6;
  TrainerOptions options{false, problem.faulty, 0};
  options.on_nan = OnNan::skip;
  test::expect_error([&] { run_once(context, config, problem.folder / "run", options); },
                     {"step 11: ", "10 updates in a row were skipped"});
}

// A checkpoint after an update that was skipped would count it as the newest state that is good.
TEST(NotFinite, NothingIsSavedAfterASkippedUpdate) {
  Context context(2);
  const FaultyRows problem(context);
  RunConfig config = problem.config;
  config.train.steps = 5;
  TrainerOptions options{false, problem.faulty, 0};
  options.on_nan = OnNan::skip;
  const std::string run = problem.folder / "run";
  Trainer trainer(context, config, run, options);
  test::run(trainer);
  EXPECT_EQ(trainer.step(), 5);
  EXPECT_EQ(trainer.saved_step(), 4);
  EXPECT_EQ(verify_checkpoint(model_folder(run)).step, 4);
  EXPECT_FALSE(std::filesystem::exists(run + "/checkpoints/step-00000002"));
  EXPECT_FALSE(std::filesystem::exists(run + "/checkpoints/step-00000005"));
}

/// A run whose validation rows alone meet the value that is no number.
RunConfig with_faulty_validation(Context& context, const FaultyRows& problem) {
  RunConfig config = problem.config;
  config.data.validation_rows = config.data.rows;
  config.data.rows = problem.folder / "sound.safetensors";
  const Tensor rows = Tensor::zeros(context, DType::i32, {6, 9});
  write_safetensors(config.data.rows, {{"rows", rows}});
  config.train.evaluate_every = 3;
  return config;
}

TEST(NotFinite, AnEvaluationStopsBeforeItsStepIsSaved) {
  Context context(2);
  const FaultyRows problem(context);
  const std::string run = problem.folder / "run";
  test::expect_error(
      [&] {
        run_once(context, with_faulty_validation(context, problem), run,
                 {false, problem.faulty, 0});
      },
      {"step 3: the validation loss is nan", "the last checkpoint stays"});
  EXPECT_EQ(verify_checkpoint(model_folder(run)).step, 2);
  EXPECT_FALSE(std::filesystem::exists(run + "/checkpoints/step-00000003"));
}

TEST(NotFinite, AnEvaluationThatIsSkippedGivesItsCheckpointNoLoss) {
  Context context(2);
  const FaultyRows problem(context);
  TrainerOptions options{false, problem.faulty, 0};
  options.on_nan = OnNan::skip;
  const std::string run = problem.folder / "run";
  const auto metrics = run_once(context, with_faulty_validation(context, problem), run, options);
  EXPECT_EQ(metrics.size(), 6u);
  EXPECT_EQ(verify_checkpoint(model_folder(run)).step, 6);
  const nlohmann::json list = read_json_file(run + "/checkpoints.json");
  for (const auto& entry : list.at("checkpoints")) EXPECT_FALSE(entry.contains("loss")) << entry;
}

TEST(NotFinite, StopsWhereValuesOverflow) {
  Context context(1);
  const FaultyRows problem(context);
  RunConfig config = problem.config;
  config.train.learning_rate = 1e38;
  config.train.warmup_steps = 0;
  test::expect_error(
      [&] {
        run_once(context, config, problem.folder / "run", {false, problem.init, 0});
      },
      {"step ", "not finite"});
}

// Losses of some 1e37 are finite; their gradient is multiplied by 1/rms = 316 of a tiny residual.
TEST(NotFinite, NamesTheGradient) {
  Context context(1);
  const FaultyRows problem(context);
  const std::string model = problem.folder / "large";
  test::write_changed_model(context, problem.init, model,
                            [](const std::string& name, std::span<float> values) {
                              for (float& x : values) {
                                if (name == "output.weight") x = std::copysign(1e37f, x);
                                if (name == "tok_embeddings.weight") x *= 1e-4f;
                                if (name.ends_with("wo.weight") || name.ends_with("w2.weight"))
                                  x = 0;
                              }
                            });
  RunConfig config = problem.config;
  config.train.batch_size = 1;
  test::expect_error(
      [&] {
        run_once(context, config, problem.folder / "run", {false, model, 0});
      },
      {"step 1: ", "rows 0: the forward pass is finite, the gradient of ", " is not"});
}

}  // namespace
}  // namespace dcformer
