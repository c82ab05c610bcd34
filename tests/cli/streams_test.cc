#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/cli/small_run.h"

namespace dcformer::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// The tool with standard streams that a shell has redirected.
class Streams : public SmallRun {
 protected:
  ToolResult with(const std::string& redirection, std::vector<std::string> arguments) const {
    std::vector<std::string> all = {"-c", "exec \"$@\" " + redirection, "bash", DCFORMER_BINARY};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program("bash", all);
  }
};

TEST_F(Streams, LostOutputIsAnErrorOfEveryCommand) {
  train("run");
  const std::string ids = write("ids", "104 105");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"},
        {"train", "--help"},
        {"info", path("run")},
        {"generate", path("run"), "--prompt", "line", "--max-tokens", "3"},
        {"tokenizer", "encode", path("run"), path("text.txt")},
        {"tokenizer", "decode", path("run"), ids},
        {"train", "--resume", "--output", path("run")}}) {
    const ToolResult full = with(">/dev/full", arguments);
    EXPECT_EQ(full.exit_code, 1) << arguments[0];
    EXPECT_THAT(full.error, HasSubstr("error: standard output: No space left on device\n"))
        << arguments[0];
    const ToolResult closed = with(">&-", arguments);
    EXPECT_EQ(closed.exit_code, 1) << arguments[0];
    EXPECT_THAT(closed.error, HasSubstr("error: standard output: ")) << arguments[0];
  }
}

TEST_F(Streams, AnErrorOutputThatTakesNothingEndsNothing) {
  for (const std::string& redirection :
       {std::string("2>/dev/full"), std::string("2>&-"), std::string("0<&- 2>&-")}) {
    const ToolResult result =
        with(redirection, {"train", path("run.json"), "--output", path("run")});
    EXPECT_EQ(result.exit_code, 0) << redirection;
    EXPECT_THAT(result.output, StartsWith("validation: ")) << redirection;
    // Nothing that was meant for the closed stream is in a file of the run.
    EXPECT_EQ(metrics("run").size(), 6u) << redirection;
    std::filesystem::remove_all(path("run"));
    // Nor does the message of a fault end the process in another way.
    EXPECT_EQ(with(redirection, {"info", path("absent")}).exit_code, 1) << redirection;
    EXPECT_EQ(with(redirection, {"dance"}).exit_code, 2) << redirection;
  }
}

TEST_F(Streams, AReaderThatLeavesEndsTheTool) {
  train("run");
  const ToolResult result = run_program(
      "bash", {"-c", "set -o pipefail; \"$@\" | head -c 1 >/dev/null", "bash", DCFORMER_BINARY,
               "tokenizer", "encode", path("run"), write("long", std::string(300000, 'a'))});
  EXPECT_EQ(result.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(result.error, "");
}

TEST_F(Streams, AnInputThatCannotBeReadIsAnError) {
  train("run");
  const ToolResult result = with("<" + folder_.path(), {"tokenizer", "encode", path("run")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.error, "error: standard input: Is a directory\n");
}

}  // namespace
}  // namespace dcformer::test
