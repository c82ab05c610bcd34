#include "tests/support/run_tool.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace dcformer::test {
namespace {

ToolResult run_shell(const std::string& script, const ToolOptions& options = {}) {
  return run_program("sh", {"-c", script}, options);
}

TEST(RunTool, SeparatesTheStreamsAndKeepsTheExitCode) {
  const ToolResult result = run_shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.error, "err\n");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_FALSE(result.timed_out);
}

TEST(RunTool, PassesInputEnvironmentAndFolder) {
  const TemporaryFolder folder;
  // Larger than a pipe, so that reading and writing must alternate.
  const std::string input(300000, 'x');
  const ToolResult result = run_shell(
      "pwd; echo $FLAVOUR; cat",
      {.input = input, .environment = {{"FLAVOUR", "plum"}}, .working_folder = folder.path()});
  EXPECT_EQ(result.output, std::filesystem::canonical(folder.path()).string() + "\nplum\n" + input);
}

TEST(RunTool, SurvivesAProgramThatReadsNothing) {
  EXPECT_EQ(run_shell("exit 0", {.input = std::string(300000, 'x')}).exit_code, 0);
}

TEST(RunTool, KillsAtTheTimeLimit) {
  const ToolResult result = run_program("sleep", {"60"}, {.timeout_seconds = 0.2});
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, -9);
}

TEST(RunTool, ReportsSignalsAndMissingPrograms) {
  EXPECT_EQ(run_shell("kill -15 $$").exit_code, -15);
  const ToolResult missing = run_program("./no-such-program", {});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.error, ::testing::HasSubstr("No such file"));
}

TEST(TemporaryFolder, IsRemovedWithItsContent) {
  std::string path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    std::ofstream(folder / "file") << "text";
    EXPECT_TRUE(std::filesystem::exists(folder / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace dcformer::test
