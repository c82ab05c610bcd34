#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/small_run.h"

namespace dcformer::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class GenerateCommand : public SmallRun {
 protected:
  ToolResult generate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"generate", path("run"), "--dtype", "f32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool(arguments);
  }
  std::string text(const std::vector<std::string>& more) const {
    const ToolResult result = generate(more);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    return result.output;
  }
};

TEST_F(GenerateCommand, TheSeedDecidesTheText) {
  train("run");
  const std::vector<std::string> arguments = {"--prompt", "line", "--max-tokens", "20", "--seed"};
  const auto with_seed = [&](const char* seed) {
    auto all = arguments;
    all.push_back(seed);
    return text(all);
  };
  const std::string first = with_seed("3");
  EXPECT_EQ(with_seed("3"), first);
  EXPECT_NE(with_seed("4"), first);
  EXPECT_THAT(first, StartsWith("line"));
  EXPECT_EQ(first.back(), '\n');

  // Greedy needs no seed, and one most likely token is greedy.
  const std::string greedy = text({"--prompt", "line", "--temperature", "0", "--max-tokens", "9"});
  EXPECT_EQ(text({"--prompt", "line", "--top-k", "1", "--max-tokens", "9", "--seed", "8"}), greedy);
  EXPECT_EQ(text({"--prompt", "line", "--top-p", "0.000001", "--max-tokens", "9", "--seed", "9"}),
            greedy);
  // No new tokens: the prompt. No prompt: text from the beginning of a document.
  EXPECT_EQ(text({"--prompt", "line", "--max-tokens", "0"}), "line\n");
  EXPECT_NE(text({"--max-tokens", "5"}), "\n");
  EXPECT_EQ(text({"--prompt-file", write("prompt", "line"), "--max-tokens", "20", "--seed", "3"}),
            first);
}

TEST_F(GenerateCommand, EndsWithTheContext) {
  train("run", {"--set", "train.steps=1", "--set", "train.warmup_steps=0"});
  // A context of 32: prompt and new tokens, and one that is said but not seen.
  const std::string full(32, 'a');
  EXPECT_LE(text({"--prompt", full, "--max-tokens", "100"}).size(), full.size() + 2);
  const ToolResult beyond = generate({"--prompt", full + "a"});
  EXPECT_EQ(beyond.exit_code, 1);
  EXPECT_THAT(beyond.error, HasSubstr("the prompt has 33 tokens, more than the context of 32"));
}

// A vocabulary may be larger than the tokenizer's; an untrained model would draw from all of it.
TEST_F(GenerateCommand, DrawsNoIdsThatTheTokenizerLacks) {
  train("run", {"--set", "model.vocab_size=4000", "--set", "train.steps=1", "--set",
                "train.learning_rate=0", "--set", "train.warmup_steps=0"});
  EXPECT_GT(text({"--prompt", "a", "--max-tokens", "25"}).size(), 2u);
}

TEST_F(GenerateCommand, InfoDescribesTheModel) {
  train("run", {"--set", "train.steps=1", "--set", "train.warmup_steps=0"});
  const ToolResult info = run_tool({"info", path("run")});
  EXPECT_EQ(info.exit_code, 0) << info.error;
  // The embedding and the output layer: 257 · 16 each.
  EXPECT_THAT(info.output, HasSubstr("4,112"));
}

}  // namespace
}  // namespace dcformer::test
