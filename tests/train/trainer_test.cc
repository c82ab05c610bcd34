#include "dcformer/train/trainer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "dcformer/base/file.h"
#include "dcformer/generate/generator.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/model/checkpoint.h"
#include "tests/reference/adamw.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/random_values.h"
#include "tests/train/small_training.h"

namespace dcformer {
namespace {

using test::run;
using test::run_once;
using test::small_run;
using test::TemporaryFolder;
using test::weights_of;
using test::write_text;

RunConfig golden_run(const std::string& folder) {
  const nlohmann::json json = {
      {"model", read_json_file(folder + "/config.json")},
      {"data", {{"rows", folder + "/expected.safetensors:batches"}, {"shuffle", false}}},
      {"train",
       {{"steps", 20},
        {"warmup_steps", 2},
        {"learning_rate", 1e-2},
        {"batch_size", 2},
        {"decay_mask", "all"},
        {"dtype", "f32"}}}};
  return parse_run_config(json, "golden run");
}

/// Writes a copy of a model whose every weight is the next float up or down.
void write_moved_model(Context& context, const std::string& folder, uint64_t seed,
                       const std::string& to) {
  test::write_changed_model(context, folder, to, [&](const std::string&, std::span<float> values) {
    const auto directions = test::random_doubles(static_cast<int64_t>(values.size()), seed++);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] =
          std::nextafter(values[i], std::copysign(INFINITY, static_cast<float>(directions[i])));
  });
}

/// How far the gradient norms of five steps move, step by step, when the starting weights move to
/// the next float: what rounding alone makes of them. The largest of four random moves.
std::vector<double> rounding_of_norms(Context& context, const std::string& folder,
                                      const std::vector<StepMetrics>& metrics) {
  std::vector<double> largest(metrics.size());
  for (const uint64_t seed : {100, 200, 300, 400}) {
    const TemporaryFolder output;
    const std::string moved = output.path() + "/moved";
    write_moved_model(context, folder, seed, moved);
    Trainer trainer(context, golden_run(folder), output.path() + "/run", {false, moved, 5});
    const auto other = run(trainer);
    for (size_t i = 0; i < metrics.size(); ++i)
      largest[i] =
          std::max(largest[i], std::abs(other.at(i).gradient_norm / metrics[i].gradient_norm - 1));
  }
  return largest;
}

class GoldenFiveSteps : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenFiveSteps, LossesNormsRatesAndWeights) {
  Context context(2);
  const std::string folder = test::golden_path("training/" + GetParam());
  const auto expected = test::read_tensors(folder + "/expected.safetensors");
  const TemporaryFolder output;
  Trainer trainer(context, golden_run(folder), output.path() + "/run", {false, folder, 5});
  const auto metrics = run(trainer);
  ASSERT_EQ(metrics.size(), 5u);
  const std::vector<double> rounding = rounding_of_norms(context, folder, metrics);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(metrics[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_NEAR(metrics[i].loss / expected.at("losses")[i], 1, 2e-3);
    EXPECT_NEAR(metrics[i].learning_rate, expected.at("learning_rates")[i], 1e-12);
    const double error = std::abs(metrics[i].gradient_norm / expected.at("gradient_norms")[i] - 1);
    // For docs/parity.md: --gtest_output=xml prints them.
    RecordProperty("gradient_norm_error_" + std::to_string(i + 1), fmt::format("{:.1e}", error));
    RecordProperty("gradient_norm_rounding_" + std::to_string(i + 1),
                   fmt::format("{:.1e}", rounding[i]));
    // Adam makes a full step of a gradient near zero, whatever its sign, so that the last two norms
    // are not determined to 1e-3 by the starting weights' 24 bits.
    EXPECT_LE(error, i < 3 ? 1e-3 : std::max(1e-3, 2 * rounding[i])) << "step " << i + 1;
    EXPECT_LE(rounding[i], 0.1) << "the bound above would hold nothing";
  }
  for (const Parameter& p : trainer.model().parameters().all())
    EXPECT_TRUE(test::norm_close(p.value.span<float>(), expected.at("final." + p.spec.name), 3e-3))
        << p.spec.name;
  // The checkpoint holds the same values under the published names.
  const auto saved =
      test::read_tensors(model_folder(output.path() + "/run") + "/model.safetensors");
  for (const Parameter& p : trainer.model().parameters().all())
    EXPECT_TRUE(test::same_values(p.value.span<float>(), saved.at(p.spec.name))) << p.spec.name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFiveSteps, ::testing::ValuesIn(test::golden_training_names()),
                         [](const auto& info) { return test::test_name(info.param); });

TEST(Trainer, TheSameSeedGivesTheSameBytesAtOneAndTwoThreads) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  for (const std::string dtype : {"f32", "bf16"}) {
    for (const int threads : {1, 2}) {
      Context context(threads);
      Trainer trainer(context, small_run(text, dtype, 1),
                      folder.path() + "/" + dtype + std::to_string(threads), {});
      run(trainer);
    }
    EXPECT_EQ(weights_of(folder.path() + "/" + dtype + "1"),
              weights_of(folder.path() + "/" + dtype + "2"))
        << dtype;
  }
}

TEST(Trainer, ActivationCheckpointingChangesNoBit) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(2);
  RunConfig config = small_run(text, "bf16", 2);
  config.model["dropout"] = 0.1;
  run_once(context, config, folder.path() + "/kept", {});
  config.train.activation_checkpointing = true;
  run_once(context, config, folder.path() + "/again", {});
  EXPECT_EQ(weights_of(folder.path() + "/again"), weights_of(folder.path() + "/kept"));
}

// The masks belong to the tokens of an update, not to the passes that it is cut into.
TEST(Trainer, DropoutDoesNotDependOnThePasses) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(2);
  RunConfig config = small_run(text, "f32", 1);
  config.model["dropout"] = 0.3;
  config.train.batch_size = 8;
  const auto one = run_once(context, config, folder.path() + "/one", {});
  config.train.batch_size = 2;
  config.train.accumulation = 4;
  const auto four = run_once(context, config, folder.path() + "/four", {});
  EXPECT_NEAR(four.front().loss, one.front().loss, 1e-6 * one.front().loss);
  EXPECT_NEAR(four.front().gradient_norm, one.front().gradient_norm,
              1e-4 * one.front().gradient_norm);
}

TEST(Trainer, AccumulationIsOneLargeBatch) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(2);
  RunConfig large = small_run(text, "f32", 1);
  large.train.batch_size = 8;
  Trainer one(context, large, folder.path() + "/one", {});
  Trainer two(context, small_run(text, "f32", 2), folder.path() + "/two", {});
  const auto a = run(one);
  const auto b = run(two);
  // The same mean over tokens; sums in another order.
  EXPECT_NEAR(a.front().loss, b.front().loss, 1e-6 * a.front().loss);
  EXPECT_NEAR(a.front().gradient_norm, b.front().gradient_norm, 1e-4 * a.front().gradient_norm);
}

TEST(Trainer, LearnsAndValidates) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(2);
  RunConfig config = small_run(text, "f32", 1);
  config.train.steps = 60;
  Trainer trainer(context, config, folder.path() + "/run", {});
  const auto metrics = run(trainer);
  EXPECT_GT(metrics.front().loss, 5.0);  // ln 257 = 5.55 for a model that knows nothing
  EXPECT_LT(metrics.back().loss, 2.0);
  const auto evaluation = trainer.evaluation();
  ASSERT_TRUE(evaluation.has_value());
  // One token a byte, the last one the document's end: bits per byte by hand.
  const auto& data = trainer.data();
  EXPECT_EQ(evaluation->n_prediction, data.validation_bytes);
  EXPECT_NEAR(*evaluation->bits_per_byte, evaluation->loss / std::log(2.0), 1e-9);
}

// Random models magnify rounding; a trained one shows how it is in use.
TEST(Trainer, CachesAndBf16OnATrainedModel) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(2);
  RunConfig config = small_run(text, "f32", 1);
  config.train.steps = 60;
  Trainer trainer(context, config, folder.path() + "/run", {});
  run(trainer);
  const std::string checkpoint = model_folder(folder.path() + "/run");
  const auto f32 = load_model(context, checkpoint, DType::f32);
  const auto bf16 = load_model(context, checkpoint, DType::bf16);
  IdRows rows{1, 64, {}};
  const auto stream = trainer.data().training.row(0);
  for (int64_t i = 0; i < 64; ++i) rows.ids.push_back(stream[static_cast<size_t>(i % 33)]);
  const auto values = [&](const LanguageModel& model, int64_t prefill) {
    return test::to_doubles(row_logits(context, model, rows, prefill).span<float>());
  };
  const auto exact = values(*f32, 0);
  const auto rounded = values(*bf16, 0);
  const double bf16_error = test::relative_distance(rounded, exact);
  for (const int64_t prefill : {1, 33, 40}) {
    EXPECT_LE(test::relative_distance(values(*f32, prefill), exact), 1e-5) << prefill;
    EXPECT_LE(test::relative_distance(values(*bf16, prefill), rounded), bf16_error) << prefill;
  }
  SequenceBatch batch;
  batch.append(63);
  const std::span<const int32_t> ids(rows.ids);
  const double loss = f32->loss(context, ids.first(63), ids.last(63), batch).loss / 63;
  EXPECT_NEAR(bf16->loss(context, ids.first(63), ids.last(63), batch).loss / 63, loss, 0.01);
}

TEST(Trainer, EveryStepHasItsLine) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(1);
  Trainer trainer(context, small_run(text, "f32", 1), folder.path() + "/run", {});
  const auto metrics = run(trainer);
  std::ifstream file(folder.path() + "/run/metrics.jsonl");
  std::string line;
  for (const StepMetrics& m : metrics) {
    ASSERT_TRUE(std::getline(file, line));
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("step"), m.step);
    EXPECT_EQ(json.at("loss"), m.loss);
    EXPECT_EQ(json.at("gradient_norm"), m.gradient_norm);
    EXPECT_EQ(json.at("learning_rate"), m.learning_rate);
    EXPECT_GT(json.at("tokens_per_second"), 0);
  }
  EXPECT_FALSE(std::getline(file, line));
}

TEST(Trainer, LearningRateIsTheRecipes) {
  TrainConfig config;
  config.steps = 100;
  config.warmup_steps = 7;
  config.learning_rate = 3e-3;
  config.final_learning_rate_ratio = 0.2;
  for (int64_t s = 0; s < 100; ++s)
    EXPECT_NEAR(learning_rate_at(config, s), reference::learning_rate(s, 3e-3, 7, 100, 0.2), 1e-15);
}

}  // namespace
}  // namespace dcformer
