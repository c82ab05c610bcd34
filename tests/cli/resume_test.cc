#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "dcformer/train/checkpoint_store.h"
#include "tests/cli/background_run.h"
#include "tests/cli/small_run.h"

namespace dcformer::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

class ResumeCommand : public SmallRun {
 protected:
  /// `dcformer train` with the arguments, for runs that are to fail.
  ToolResult try_train(const std::string& output, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"train", path("run.json"), "--output", path(output)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool(arguments);
  }
  /// The same in a process whose files may not grow beyond `kib` KiB: a disk that is full.
  ToolResult train_on_a_full_disk(int kib, const std::string& output,
                                  const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "-c",       "ulimit -f " + std::to_string(kib) + "; exec \"$@\"",
        "bash",     DCFORMER_BINARY,
        "train",    path("run.json"),
        "--output", path(output)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program("bash", arguments);
  }
  static std::string last_line(const std::string& text) {
    const size_t end = text.find_last_not_of('\n');
    const size_t begin = text.find_last_of('\n', end);
    return text.substr(begin + 1, end - begin);
  }
  std::string weights(const std::string& run) const {
    return read(run + "/checkpoints/step-00000006/model.safetensors");
  }
};

TEST_F(ResumeCommand, AFullDiskWhileSavingKeepsTheLastCheckpoint) {
  train("whole");
  train("run", {"--stop-after", "2"});
  const ToolResult full = train_on_a_full_disk(24, "run", {"--resume"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(last_line(full.error),
              AllOf(StartsWith("error: "), HasSubstr(path("run")), HasSubstr("File too large")));
  EXPECT_EQ(read("run/latest"), "step-00000002\n");
  EXPECT_EQ(verify_checkpoint(path("run/checkpoints/step-00000002")).step, 2);
  train("run", {"--resume"});
  EXPECT_EQ(weights("run"), weights("whole"));
}

TEST_F(ResumeCommand, AFullDiskWhileLoggingKeepsTheLastCheckpoint) {
  train("run", {"--set", "train.steps=400", "--stop-after", "2"});
  const ToolResult full = train_on_a_full_disk(4, "run", {"--set", "train.steps=400", "--resume"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(last_line(full.error),
              AllOf(StartsWith("error: "), HasSubstr(path("run")), HasSubstr("File too large")));
  EXPECT_EQ(verify_checkpoint(path("run/checkpoints/step-00000002")).step, 2);
  train("run", {"--set", "train.steps=400", "--resume", "--stop-after", "40"});
  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 40u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].at("step"), i + 1);
}

TEST_F(ResumeCommand, AnAlteredCheckpointIsNamedAndAnOlderOneOffered) {
  train("run", {"--set", "train.save_every=2"});
  train("whole", {"--set", "train.save_every=2"});
  const std::string file = "run/checkpoints/step-00000006/optimizer.safetensors";
  std::string bytes = read(file);
  bytes[bytes.size() / 2] ^= 1;
  write(file, bytes);
  const ToolResult refused = try_train("run", {"--set", "train.save_every=2", "--resume"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(last_line(refused.error),
              AllOf(StartsWith("error: " + path(file)), HasSubstr("altered"),
                    HasSubstr("--resume-from step-00000004")));
  const ToolResult older =
      train("run", {"--set", "train.save_every=2", "--resume-from", "step-00000004"});
  EXPECT_THAT(older.error, HasSubstr("resuming after step 4"));
  EXPECT_EQ(weights("run"), weights("whole"));
  EXPECT_EQ(metrics("run").size(), 6u);
}

TEST_F(ResumeCommand, AChangedRunFileIsSaidOrRefused) {
  train("run", {"--stop-after", "2"});
  const ToolResult refused = try_train("run", {"--resume", "--set", "train.beta1=0.5"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(last_line(refused.error), HasSubstr("train.beta1 was 0.9 and is 0.5"));
  const ToolResult longer = train("run", {"--resume", "--set", "train.steps=8"});
  EXPECT_THAT(longer.error, HasSubstr("changed: train.steps was 6 and is 8"));
  EXPECT_EQ(metrics("run").size(), 8u);
  const ToolResult shorter = try_train("run", {"--resume", "--set", "train.steps=5"});
  EXPECT_EQ(shorter.exit_code, 1);
  EXPECT_EQ(last_line(shorter.error),
            "error: train.steps: 5 is less than the 8 steps that are done");
}

// What was overridden at the start needs no repetition.
TEST_F(ResumeCommand, TheRunsOwnFileIsTaken) {
  const std::vector<std::string> settings = {"--set", "train.learning_rate=0.02", "--set",
                                             "train.save_every=1"};
  train("whole", settings);
  auto stopped = settings;
  stopped.insert(stopped.end(), {"--stop-after", "3"});
  train("run", stopped);
  fs::remove(path("run.json"));
  ToolResult rest = run_tool({"train", "--resume", "--output", path("run")});
  EXPECT_EQ(rest.exit_code, 0) << rest.error;
  EXPECT_EQ(weights("run"), weights("whole"));
  for (const char* name : {"5", "step-5", "step-00000005"}) {
    rest = run_tool({"train", "--resume-from", name, "--output", path("run"), "--set",
                     "train.evaluate_every=1"});
    EXPECT_EQ(rest.exit_code, 0) << rest.error;
    EXPECT_THAT(rest.error, HasSubstr("resuming after step 5")) << name;
    EXPECT_EQ(weights("run"), weights("whole"));
  }
  rest = run_tool({"train", "--resume", "--output", path("absent")});
  EXPECT_EQ(rest.exit_code, 1);
  EXPECT_EQ(last_line(rest.error),
            "error: " + path("absent") + ": holds no run to resume (no run.json)");
}

TEST_F(ResumeCommand, AnInterruptSaysHowToGoOn) {
  const std::string run = path("a run");
  const std::string script =
      "\"$@\" & child=$!; until [ -s '" + run +
      "/metrics.jsonl' ]; do sleep 0.01; done; kill -INT $child; wait $child";
  const ToolResult result =
      run_program("bash", {"-c", script, "bash", DCFORMER_BINARY, "train", path("run.json"),
                           "--output", run, "--set", "train.steps=10000000"});
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(last_line(result.error),
              AllOf(StartsWith("interrupted: saved after step "),
                    HasSubstr(std::string("; continue with: ") + DCFORMER_BINARY +
                              " train --resume --output '" + run + "'")));
}

TEST_F(ResumeCommand, WhereNothingIsLeftToDoItIsSaid) {
  train("run", {"--stop-after", "4"});
  const ToolResult result = train("run", {"--resume", "--stop-after", "3"});
  EXPECT_THAT(result.error, HasSubstr("nothing is left to do up to step 3: 4 are done"));
  EXPECT_EQ(metrics("run").size(), 4u);
}

TEST_F(ResumeCommand, ARunWithoutValidationSaysSo) {
  write("text.txt", std::string(4000, 'a'));
  const std::string log = train("run").error;
  const std::string said = "no validation: ";
  ASSERT_THAT(log, HasSubstr(said));
  EXPECT_EQ(log.find(said), log.rfind(said));
}

TEST_F(ResumeCommand, ALiveRunIsLeftAlone) {
  BackgroundRun live(
      {"train", path("run.json"), "--output", path("run"), "--set", "train.steps=10000000"});
  for (int i = 0; i < 3000 && !fs::exists(path("run/metrics.jsonl")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::string holder = "process " + std::to_string(live.process());
  for (const bool resume : {false, true}) {
    std::vector<std::string> more = {"--set", "train.steps=10000000"};
    if (resume) more.push_back("--resume");
    const ToolResult second = try_train("run", more);
    EXPECT_EQ(second.exit_code, 1);
    EXPECT_THAT(last_line(second.error), HasSubstr(resume ? holder : "holds a run already"));
  }
  live.signal(SIGTERM);
  EXPECT_EQ(live.wait(), 128 + SIGTERM);
  // SIGTERM saved: the checkpoint of the last step that the log has.
  const auto lines = metrics("run");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(verify_checkpoint(model_folder(path("run"))).step, lines.back().at("step"));
}

TEST_F(ResumeCommand, UsageOfTheOptions) {
  EXPECT_EQ(try_train("run", {"--on-nan", "ignore"}).exit_code, 2);
  EXPECT_EQ(try_train("run", {"--resume", "--resume-from", "step-00000001"}).exit_code, 2);
  EXPECT_EQ(try_train("run", {"--init", "x", "--resume-from", "step-00000001"}).exit_code, 2);
  EXPECT_FALSE(fs::exists(path("run")));
  train("run", {"--on-nan", "skip"});
  train("other", {"--on-nan", "stop"});
  EXPECT_EQ(weights("run"), weights("other"));
}

}  // namespace
}  // namespace dcformer::test
