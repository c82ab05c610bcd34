#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "dcformer/io/json_file.h"
#include "tests/io/expect_error.h"
#include "tests/train/small_training.h"

namespace dcformer {
namespace {

using test::run;
using test::run_once;
using test::small_run;
using test::TemporaryFolder;
using test::weights_of;
using test::with_its_json;
using test::write_text;

TEST(Resume, StopAndResumeGiveTheSameBytesAsOneRun) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(2);
  for (const std::string dtype : {"f32", "bf16"}) {
    const RunConfig config = small_run(text, dtype, 2);
    const std::string whole = folder.path() + "/whole-" + dtype;
    const std::string parts = folder.path() + "/parts-" + dtype;
    Trainer in_one(context, config, whole, {});
    const auto expected = run(in_one);
    EXPECT_EQ(run_once(context, config, parts, {false, "", 5}).size(), 5u);
    const auto rest = run_once(context, config, parts, {true, "", 0});
    ASSERT_EQ(rest.size(), 7u);
    EXPECT_EQ(rest.back().loss, expected.back().loss);
    EXPECT_EQ(weights_of(parts), weights_of(whole));
    Trainer third(context, config, parts, {true, "", 0});
    EXPECT_TRUE(third.finished());
    EXPECT_TRUE(run(third).empty());
  }
}

// Everything that the rest of a run follows from comes back, whoever computes it.
TEST(Resume, TenAndTenStepsAreTwentyAtAnyThreads) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  for (const std::string dtype : {"f32", "bf16"}) {
    RunConfig config = small_run(text, dtype, 2);
    config.train.steps = 20;
    config.train.evaluate_every = 7;
    config.model["dropout"] = 0.1;
    config.model["dynamic_dropout"] = 0.2;
    std::string expected;
    for (const int threads : {1, 2}) {
      Context whole(threads);
      Context other(3 - threads);
      const std::string name = folder.path() + "/" + dtype + std::to_string(threads);
      run_once(whole, with_its_json(config), name + "-whole", {});
      run_once(whole, with_its_json(config), name + "-parts", {false, "", 10});
      run_once(other, with_its_json(config), name + "-parts", {true, "", 0});
      EXPECT_EQ(weights_of(name + "-parts"), weights_of(name + "-whole"));
      EXPECT_EQ(read_file(name + "-parts/evaluations.jsonl"),
                read_file(name + "-whole/evaluations.jsonl"));
      EXPECT_EQ(read_file(model_folder(name + "-parts") + "/optimizer.safetensors"),
                read_file(model_folder(name + "-whole") + "/optimizer.safetensors"));
      if (!expected.empty()) {
        EXPECT_EQ(weights_of(name + "-whole"), expected);
      }
      expected = weights_of(name + "-whole");
    }
    // And dropout is on: without it the weights are others.
    config.model["dropout"] = config.model["dynamic_dropout"] = 0;
    Context context(2);
    run_once(context, config, folder.path() + "/" + dtype + "-none", {});
    EXPECT_NE(weights_of(folder.path() + "/" + dtype + "-none"), expected);
  }
}

TEST(Resume, RefusesARunFileThatMeansAnotherRun) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(1);
  const RunConfig config = small_run(text, "f32", 2);
  const std::string path = folder.path() + "/run";
  run_once(context, config, path, {false, "", 3});
  RunConfig other = config;
  other.train.learning_rate = 1;
  test::expect_error(
      [&] {
        run_once(context, other, path, {true, "", 0});
      },
      {"train.learning_rate was 0.01 and is 1.0", "cannot change", "--init"});
  // The same rows of an update in other passes, more steps, another place of the same text.
  other = config;
  other.train.batch_size = 8;
  other.train.accumulation = 1;
  other.train.steps = 14;
  other.data.text = {folder.path() + "/moved.txt"};
  std::filesystem::copy(text, other.data.text[0]);
  EXPECT_EQ(run_once(context, with_its_json(other), path, {true, "", 0}).size(), 11u);
  EXPECT_EQ(read_json_file(path + "/run.json").at("train").at("steps"), 14);
  // Another text under the same name.
  std::ofstream(other.data.text[0], std::ios::app) << "one line more\n";
  test::expect_error(
      [&] {
        run_once(context, other, path, {true, "", 0});
      },
      {"the data are not those that the run began with"});
}

TEST(Resume, ARunInUseIsRefused) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(1);
  const RunConfig config = small_run(text, "f32", 1);
  const std::string path = folder.path() + "/run";
  Trainer first(context, config, path, {});
  test::expect_error(
      [&] {
        Trainer second(context, config, path, {true, "", 0});
      },
      {"works in this folder"});
}

// The process may end between a step's line and its checkpoint.
TEST(Resume, ResumeDropsTheLinesOfStepsThatItDoesAgain) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(1);
  const RunConfig config = small_run(text, "f32", 1);
  const std::string path = folder.path() + "/run";
  run_once(context, config, path, {false, "", 3});
  std::ofstream(path + "/metrics.jsonl", std::ios::app) << R"({"step":4,"loss":1})"
                                                        << "\n"
                                                        << R"({"step":5,"lo)";
  Trainer second(context, config, path, {true, "", 5});
  run(second);
  std::ifstream file(path + "/metrics.jsonl");
  int64_t step = 0;
  for (std::string line; std::getline(file, line);)
    EXPECT_EQ(nlohmann::json::parse(line).at("step"), ++step);
  EXPECT_EQ(step, 5);
}

TEST(Resume, TheBestCheckpointIsKept) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(2);
  RunConfig config = small_run(text, "f32", 1);
  config.train.steps = 40;
  config.train.save_every = config.train.evaluate_every = 5;
  // A rate that learns and then destroys.
  config.train.warmup_steps = 40;
  config.train.learning_rate = 3;
  run_once(context, config, folder.path() + "/run", {});
  std::istringstream lines(read_file(folder.path() + "/run/evaluations.jsonl"));
  int64_t best = 0;
  double least = INFINITY;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.at("loss") < least) best = json.at("step");
    least = std::min(least, json.at("loss").get<double>());
  }
  ASSERT_GT(best, 0);
  ASSERT_LT(best, 35);
  const auto saved = [&](int64_t step) {
    return std::filesystem::exists(
        fmt::format("{}/run/checkpoints/step-{:08}", folder.path(), step));
  };
  EXPECT_TRUE(saved(best));
  for (int64_t step = 5; step <= 30; step += 5) EXPECT_EQ(saved(step), step == best) << step;
  EXPECT_TRUE(saved(35));
  EXPECT_TRUE(saved(40));
}

// Going back is one thing with going on: a start from an older checkpoint that comes to nothing
// leaves the run as it was.
TEST(Resume, GoingBackWithoutGoingOnChangesNothing) {
  const TemporaryFolder folder;
  const std::string text = write_text(folder);
  Context context(2);
  RunConfig config = small_run(text, "f32", 1);
  config.train.save_every = 3;
  config.train.keep_last = 9;
  const std::string path = folder.path() + "/run";
  run_once(context, with_its_json(config), path, {});
  const auto files = [&] {
    std::string all;
    for (const char* name : {"/latest", "/metrics.jsonl", "/checkpoints.json", "/run.json"})
      all += read_file(path + name);
    return all;
  };
  const std::string before = files();
  TrainerOptions back{true, "", 3};
  back.resume_from = "step-3";
  run_once(context, with_its_json(config), path, back);
  EXPECT_EQ(files(), before);
  RunConfig absent = config;
  absent.data.text = {folder.path() + "/absent.txt"};
  test::expect_error([&] { run_once(context, with_its_json(absent), path, back); }, {"absent.txt"});
  EXPECT_EQ(files(), before);
}

}  // namespace
}  // namespace dcformer
