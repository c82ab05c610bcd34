#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "dcformer/io/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/run_tool.h"
#include "tests/support/temporary_folder.h"

namespace dcformer::test {
namespace {

class LogitsCommand : public ::testing::Test {
 protected:
  std::vector<float> logits(const std::vector<std::string>& more) {
    const std::string output = folder_ / "logits.safetensors";
    std::vector<std::string> arguments = {
        "logits", model_, "--tokens", model_ + "/expected.safetensors", "--output", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ToolResult result = run_tool(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    const SafetensorsFile file = SafetensorsFile::open(output);
    EXPECT_EQ(file.entries().size(), 1u);
    const Tensor tensor = file.tensor("logits");
    EXPECT_EQ(tensor.shape(), (Shape{2, 32, 61}));
    const auto values = tensor.span<float>();
    return {values.begin(), values.end()};
  }

  const std::string model_ = golden_path("dcformer-window");
  TemporaryFolder folder_;
};

// The golden files' tolerance: 1e-4 of the largest logit (tests/golden/README.md).
TEST_F(LogitsCommand, EqualThePublishedModelsForEveryPrefill) {
  const auto expected = read_tensors(model_ + "/expected.safetensors").at("logits_float64");
  for (const char* prefill : {"0", "1", "12", "31", "32", "1000"})
    EXPECT_TRUE(max_close(logits({"--prefill", prefill}), expected, 1e-4)) << prefill;
  EXPECT_TRUE(max_close(logits({}), expected, 1e-4));
}

TEST_F(LogitsCommand, InBf16AreNear) {
  const auto expected = read_tensors(model_ + "/expected.safetensors").at("logits_float64");
  const auto rounded = logits({"--dtype", "bf16"});
  // Eight bits of significand through a small model of large weights: 0.07 here. That it is the
  // best that bf16 can do is tested with the model.
  EXPECT_TRUE(norm_close(rounded, expected, 0.4));
  EXPECT_FALSE(max_close(rounded, expected, 1e-5));
  // f32 unless asked for, so that others can check against it.
  EXPECT_TRUE(same_values(logits({}), logits({"--dtype", "f32"})));
}

// More than 32 rows go through other products, so that the passes show in the last bits.
TEST_F(LogitsCommand, ThePrefillIsThePassesThatAreMade) {
  Context context(1);
  const Tensor ids = Tensor::zeros(context, DType::i32, {1, 64});
  for (int32_t i = 0; i < 64; ++i) ids.data<int32_t>()[i] = i * 7 % 61;
  const std::string tokens = folder_ / "ids.safetensors";
  write_safetensors(tokens, {{"input_ids", ids}});
  const auto with_prefill = [&](const char* prefill) {
    const std::string output = folder_ / "logits.safetensors";
    EXPECT_EQ(
        run_tool({"logits", model_, "--tokens", tokens, "--output", output, "--prefill", prefill})
            .exit_code,
        0);
    const Tensor logits = SafetensorsFile::open(output).tensor("logits");
    return std::vector<float>(logits.span<float>().begin(), logits.span<float>().end());
  };
  const auto whole = with_prefill("0");
  const auto steps = with_prefill("1");
  EXPECT_TRUE(same_values(with_prefill("64"), whole));
  EXPECT_TRUE(same_values(with_prefill("32"), steps));
  EXPECT_TRUE(max_close(steps, whole, 1e-4));
  EXPECT_FALSE(same_values(steps, whole));
}

TEST_F(LogitsCommand, LeadingAxesAreFlattened) {
  Context context(1);
  const Tensor ids = Tensor::zeros(context, DType::i64, {2, 2, 3});
  ids.data<int64_t>()[11] = 60;
  const std::string tokens = folder_ / "ids.safetensors";
  write_safetensors(tokens, {{"some", ids}, {"other", ids}});
  const std::string output = folder_ / "logits.safetensors";
  const ToolResult result =
      run_tool({"logits", model_, "--tokens", tokens + ":some", "--output", output});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(SafetensorsFile::open(output).tensor("logits").shape(), (Shape{4, 3, 61}));

  ids.data<int64_t>()[11] = 61;
  write_safetensors(tokens, {{"some", ids}});
  const ToolResult beyond =
      run_tool({"logits", model_, "--tokens", tokens, "--output", folder_ / "none.safetensors"});
  EXPECT_EQ(beyond.exit_code, 1);
  EXPECT_THAT(beyond.error,
              ::testing::StrEq("error: " + tokens +
                               ": row 3, place 2: id 61 is outside the vocabulary of 61\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none.safetensors"));
}

}  // namespace
}  // namespace dcformer::test
