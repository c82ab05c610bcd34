#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "dcformer/io/safetensors.h"
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

// Weights that overflowed: no text comes from them, but their logits may be looked at.
TEST_F(GenerateCommand, AModelWhoseLogitsAreNotFinite) {
  train("run", {"--set", "train.steps=1", "--set", "train.warmup_steps=0"});
  const std::string weights = path("run/checkpoints/step-00000001/model.safetensors");
  Context context(1);
  std::vector<std::pair<std::string, Tensor>> tensors;
  const SafetensorsFile file = SafetensorsFile::open(weights);
  for (const auto& entry : file.entries()) {
    const bool changed = entry.name == "output.weight";
    const Tensor tensor = file.tensor(entry);
    const Tensor copy = Tensor::empty(context, DType::f32, entry.shape);
    std::copy_n(tensor.data<float>(), tensor.numel(), copy.data<float>());
    if (changed) copy.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    tensors.emplace_back(entry.name, copy);
  }
  write_safetensors(weights, tensors);
  for (const char* temperature : {"0", "1"}) {
    const ToolResult refused = generate({"--prompt", "a", "--temperature", temperature});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.error, HasSubstr("error: the model's logits are not finite"));
  }
  const Tensor ids = Tensor::zeros(context, DType::i32, {1, 4});
  write_safetensors(path("ids.safetensors"), {{"ids", ids}});
  const ToolResult logits = run_tool({"logits", path("run"), "--tokens", path("ids.safetensors"),
                                      "--output", path("logits.safetensors")});
  EXPECT_EQ(logits.exit_code, 0);
  EXPECT_EQ(logits.error, "warning: 4 of 1028 logits are not finite\n");
  EXPECT_EQ(SafetensorsFile::open(path("logits.safetensors")).tensor("logits").shape(),
            (Shape{1, 4, 257}));
}

TEST_F(GenerateCommand, InfoDescribesTheModel) {
  train("run", {"--set", "train.steps=1", "--set", "train.warmup_steps=0"});
  const ToolResult info = run_tool({"info", path("run")});
  EXPECT_EQ(info.exit_code, 0) << info.error;
  // The embedding and the output layer: 257 · 16 each.
  EXPECT_THAT(info.output, HasSubstr("4,112"));
  EXPECT_THAT(info.output, HasSubstr("width 16, 2 layers, 2 heads of 8 (2 key/value heads)"));
  train("one", {"--set", "train.steps=1", "--set", "train.warmup_steps=0", "--set",
                "model.n_layer=1", "--set", "model.n_head=1"});
  EXPECT_THAT(run_tool({"info", path("one")}).output,
              HasSubstr("width 16, 1 layer, 1 head of 16 (1 key/value head)"));
}

}  // namespace
}  // namespace dcformer::test
