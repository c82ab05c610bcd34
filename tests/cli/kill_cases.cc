#include "tests/cli/kill_cases.h"

#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "tests/cli/background_run.h"
#include "tests/support/random_values.h"

namespace dcformer::test {
namespace {

namespace fs = std::filesystem;

/// The lines of a log without the fields that say how long something took.
std::vector<nlohmann::json> timeless(std::vector<nlohmann::json> lines) {
  for (nlohmann::json& line : lines)
    for (const char* key : {"seconds", "tokens_per_second"}) line.erase(key);
  return lines;
}

/// The files of a run by their paths in it. TensorBoard's are one for each start of the process.
std::set<std::string> files_of(const std::string& run) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(run))
    if (entry.is_regular_file() && !entry.path().filename().string().starts_with("events."))
      files.insert(fs::relative(entry.path(), run).string());
  return files;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void KilledRuns::kill_and_compare(int n_kill, uint64_t seed) {
  const std::vector<std::string> settings = {
      "--set", "train.steps=24",         "--set", "train.save_every=2",
      "--set", "train.evaluate_every=3", "--set", "model.dropout=0.1"};
  const auto begin = std::chrono::steady_clock::now();
  train("whole", settings);
  const double whole_seconds = seconds_since(begin);
  const auto expected = timeless(metrics("whole"));
  const auto expected_evaluations = timeless(lines("whole/evaluations.jsonl"));
  const std::string weights = "/checkpoints/step-00000024/model.safetensors";
  ASSERT_EQ(expected.size(), 24u);
  ASSERT_EQ(expected_evaluations.size(), 8u);
  const auto moments = random_doubles(10 * n_kill, seed);
  size_t next = 0;
  const auto arguments = [&](const std::string& run) {
    std::vector<std::string> list = {"train", path("run.json"), "--output", path(run)};
    list.insert(list.end(), settings.begin(), settings.end());
    if (fs::exists(path(run + "/run.json"))) list.push_back("--resume");
    return list;
  };
  int n_killed = 0;
  for (int round = 0; n_killed < n_kill; ++round) {
    const std::string run = "run-" + std::to_string(round);
    while (n_killed < n_kill) {
      BackgroundRun process(arguments(run));
      // Early ones meet the start, later ones steps, saves and prunes.
      const double share = std::abs(moments.at(next++ % moments.size()));
      std::this_thread::sleep_for(std::chrono::duration<double>(share * whole_seconds));
      process.signal(SIGKILL);
      const int status = process.wait();
      ASSERT_TRUE(status == 0 || status == -SIGKILL) << "exit status " << status << " in " << run;
      if (status == 0) break;
      ++n_killed;
    }
    const ToolResult rest = run_tool(arguments(run));
    ASSERT_EQ(rest.exit_code, 0) << rest.error;
    EXPECT_EQ(read(run + weights), read("whole" + weights)) << run;
    EXPECT_EQ(timeless(metrics(run)), expected) << run;
    EXPECT_EQ(timeless(lines(run + "/evaluations.jsonl")), expected_evaluations) << run;
    EXPECT_EQ(files_of(path(run)), files_of(path("whole"))) << run;
    fs::remove_all(path(run));
  }
}

}  // namespace dcformer::test
