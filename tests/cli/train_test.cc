#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/cli/background_run.h"
#include "tests/cli/small_run.h"

namespace dcformer::test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
namespace fs = std::filesystem;

class TrainCommand : public SmallRun {
 protected:
  std::string weights(const std::string& run, const std::string& step) const {
    return read(run + "/checkpoints/step-" + step + "/model.safetensors");
  }

  /// Whole lines of the metrics so far, of a run that may still be writing.
  int64_t metrics_lines() const {
    std::ifstream file(path("run/metrics.jsonl"));
    return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
  }
};

TEST_F(TrainCommand, WritesMetricsCheckpointsAndTheValidation) {
  const ToolResult result = train("run");
  EXPECT_THAT(result.output,
              MatchesRegex("validation: [0-9.]+ nats per token, [0-9.]+ bits per byte\n"));
  EXPECT_THAT(result.error, HasSubstr("step 6/6"));
  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 6u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].size(), 7u);
    EXPECT_EQ(lines[i].at("step"), i + 1);
    for (const char* key : {"loss", "gradient_norm", "parameter_norm", "learning_rate", "seconds",
                            "tokens_per_second"})
      EXPECT_GT(lines[i].at(key).get<double>(), 0) << key;
  }
  // Warm-up over two updates, then down from the full rate.
  EXPECT_DOUBLE_EQ(lines[0].at("learning_rate"), 0.005);
  EXPECT_DOUBLE_EQ(lines[1].at("learning_rate"), 0.01);
  EXPECT_DOUBLE_EQ(lines[2].at("learning_rate"), 0.01);
  EXPECT_LT(lines[5].at("learning_rate"), 0.005);
  // A model that knows nothing: ln 257 = 5.55 nats.
  EXPECT_NEAR(lines[0].at("loss"), 5.55, 0.1);
  EXPECT_LT(lines[5].at("loss"), lines[0].at("loss"));
  EXPECT_EQ(read("run/latest"), "step-00000006\n");
  EXPECT_TRUE(fs::exists(path("run/checkpoints/step-00000006/config.json")));
  EXPECT_TRUE(fs::exists(path("run/run.json")));
}

TEST_F(TrainCommand, OverridesReachTheRun) {
  train("run", {"--set", "train.steps=2", "--set", "train.learning_rate=0.25", "--set",
                "train.warmup_steps=0"});
  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("learning_rate"), 0.25);
  const auto kept = nlohmann::json::parse(read("run/run.json"));
  EXPECT_EQ(kept.at("train").at("steps"), 2);
}

TEST_F(TrainCommand, TheSameSeedGivesTheSameBytesWhateverTheThreads) {
  train("one", {"--threads", "1"});
  train("two", {"--threads", "2"});
  train("other", {"--set", "train.seed=2"});
  EXPECT_EQ(weights("one", "00000006"), weights("two", "00000006"));
  EXPECT_NE(weights("one", "00000006"), weights("other", "00000006"));
}

TEST_F(TrainCommand, AStoppedRunGoesOnAsIfItHadNot) {
  train("whole");
  train("parts", {"--stop-after", "3"});
  EXPECT_EQ(read("parts/latest"), "step-00000003\n");
  EXPECT_EQ(metrics("parts").size(), 3u);
  const ToolResult resumed = train("parts", {"--resume"});
  EXPECT_THAT(resumed.error, HasSubstr("resuming after step 3"));
  EXPECT_EQ(weights("whole", "00000006"), weights("parts", "00000006"));
  const auto whole = metrics("whole");
  const auto parts = metrics("parts");
  ASSERT_EQ(parts.size(), 6u);
  for (size_t i = 0; i < 6; ++i)
    for (const char* key : {"step", "loss", "gradient_norm", "learning_rate"})
      EXPECT_EQ(parts[i].at(key), whole[i].at(key)) << key << " of line " << i;
  // A finished run only validates.
  const ToolResult again = train("parts", {"--resume"});
  EXPECT_THAT(again.output, HasSubstr("validation: "));
  EXPECT_EQ(metrics("parts").size(), 6u);
}

TEST_F(TrainCommand, StartsFromAModelOrARun) {
  train("first");
  train("from_run", {"--init", path("first"), "--stop-after", "1"});
  train("from_model", {"--init", path("first/checkpoints/step-00000006"), "--stop-after", "1"});
  for (const char* run : {"from_run", "from_model"}) ASSERT_EQ(metrics(run).size(), 1u);
  ASSERT_EQ(metrics("first").size(), 6u);
  EXPECT_EQ(metrics("from_run")[0].at("loss"), metrics("from_model")[0].at("loss"));
  EXPECT_LT(metrics("from_run")[0].at("loss"), metrics("first")[4].at("loss"));
  const ToolResult absent =
      run_tool({"train", path("run.json"), "--output", path("none"), "--init", path("absent")});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.error, HasSubstr("absent: no such folder"));
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(TrainCommand, ValidatesAndSavesOnTheWay) {
  const ToolResult result =
      train("run", {"--set", "train.evaluate_every=2", "--set", "train.save_every=2"});
  EXPECT_THAT(result.error, HasSubstr("step 2: validation: "));
  EXPECT_THAT(result.error, HasSubstr("step 4: validation: "));
  EXPECT_TRUE(fs::exists(path("run/checkpoints/step-00000004")));
  EXPECT_TRUE(fs::exists(path("run/checkpoints/step-00000006")));
  EXPECT_FALSE(fs::exists(path("run/checkpoints/step-00000002")));
}

TEST_F(TrainCommand, AnInterruptFinishesTheStepAndSaves) {
  // More steps than anybody waits for.
  BackgroundRun run(
      {"train", path("run.json"), "--output", path("run"), "--set", "train.steps=10000000"});
  for (int i = 0; i < 3000 && metrics_lines() < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_GE(metrics_lines(), 2);
  run.signal(SIGINT);
  EXPECT_EQ(run.wait(), 128 + SIGINT);
  // The checkpoint is of the last step in the metrics, and whole.
  const auto lines = metrics("run");
  ASSERT_FALSE(lines.empty());
  const std::string step = std::to_string(lines.back().at("step").get<int64_t>());
  const std::string name = "step-" + std::string(8 - step.size(), '0') + step;
  EXPECT_EQ(read("run/latest"), name + "\n");
  const ToolResult info = run_tool({"info", path("run")});
  EXPECT_EQ(info.exit_code, 0) << info.error;
}

}  // namespace
}  // namespace dcformer::test
