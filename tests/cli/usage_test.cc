#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_tool.h"

namespace dcformer::test {
namespace {

using ::testing::HasSubstr;

// A command line that says nothing sensible: `error: …` and exit status 2, before anything is read.
TEST(Usage, WrongUsageExitsWith2) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{},
        {"dance"},
        {"train"},
        {"train", "r.json", "--output", "o", "--resume", "--init", "m"},
        {"generate"},
        {"generate", "x", "--top-p", "2"},
        {"logits", "x"},
        {"tokenizer"},
        {"tokenizer", "encode"},
        {"info", "x", "--unknown"},
        {"--threads", "0", "info", "x"}})
    EXPECT_EQ(run_tool(arguments).exit_code, 2) << (arguments.empty() ? "" : arguments[0]);
}

TEST(Usage, ValuesThatNoOptionTakes) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"generate", "x", "--top-p", "0"}, "--top-p: expected a number above 0, at most 1"},
      {{"generate", "x", "--top-p", "nan"}, "--top-p: expected a number above 0, at most 1"},
      {{"generate", "x", "--temperature", "inf"}, "--temperature: expected a number of at least 0"},
      {{"generate", "x", "--temperature", "nan"}, "--temperature: expected a number of at least 0"},
      {{"generate", "x", "--temperature", "-1"}, "--temperature: expected a number of at least 0"},
      {{"generate", "x", "--top-k", "1.5"}, "--top-k: expected a whole number of at least 0"},
      {{"generate", "x", "--max-tokens", "99999999999999999999"},
       "--max-tokens: expected a whole number of at least 0"},
      {{"generate", "x", "--seed", "-1"}, "--seed: expected a whole number of at least 0"},
      {{"generate", ""}, "model: expected a name"},
      {{"generate", "x", "--prompt-file", ""}, "--prompt-file: expected a name"},
      {{"logits", "x", "--tokens", "i", "--output", ""}, "--output: expected a name"},
      {{"logits", "x", "--tokens", "i", "--output", "o", "--prefill", "-2"},
       "--prefill: expected a whole number of at least 0"},
      {{"tokenizer", "train", "x", "--output", ""}, "--output: expected a name"},
      {{"tokenizer", "train", "x", "--output", "o", "--vocab-size", "0"},
       "--vocab-size: expected a whole number of at least 1"},
      {{"train", "--output", "o"}, "run is required"},
      {{"train", "r.json", "--output", ""}, "--output: expected a name"},
      {{"train", "r.json", "--output", "o", "--stop-after", "0"},
       "--stop-after: expected a whole number of at least 1"},
      {{"train", "r.json", "--output", "o", "--on-nan", "ignore"}, "--on-nan: ignore"},
      {{"train", "r.json", "--output", "o", "--set", "steps"}, "steps: expected SECTION.KEY=VALUE"},
      {{"train", "r.json", "--output", "o", "--set", "steps=1"},
       "steps=1: expected SECTION.KEY=VALUE"},
      {{"train", "r.json", "--output", "o", "--set", "tran.steps=1"},
       "unknown section 'tran', expected one of model, data, train"},
      {{"--threads", "010", "info", "x"}, "--threads: expected a whole number from 1 to 1024"},
      {{"--threads", "2000", "info", "x"}, "--threads: expected a whole number from 1 to 1024"}};
  for (const auto& [arguments, text] : cases) {
    const ToolResult result = run_tool(arguments);
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(result.error, HasSubstr(text));
  }
}

TEST(Usage, HelpNamesTheChoices) {
  const std::string help = run_tool({"train", "--help"}).output;
  EXPECT_THAT(help, HasSubstr("--on-nan TEXT:{stop,skip}=stop"));
  EXPECT_THAT(help, HasSubstr("--stop-after INT:of at least 1"));
}

TEST(Usage, EveryCommandHasAnExample) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"train"},
                                                  {"generate"},
                                                  {"logits"},
                                                  {"info"},
                                                  {"tokenizer"},
                                                  {"tokenizer", "train"},
                                                  {"tokenizer", "encode"},
                                                  {"tokenizer", "decode"}}) {
    auto arguments = command;
    arguments.push_back("--help");
    const auto result = run_tool(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr("Example")) << command.back();
  }
}

}  // namespace
}  // namespace dcformer::test
