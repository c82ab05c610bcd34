#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/small_run.h"
#include "tests/text/sample_tokenizers.h"

namespace dcformer::test {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

class TokenizerCommand : public SmallRun {
 protected:
  ToolResult run(std::vector<std::string> arguments, const std::string& input = {}) const {
    arguments.insert(arguments.begin(), "tokenizer");
    return run_tool(arguments, {.input = input});
  }

  /// Exactly one line on standard error, and nothing on standard output.
  void expect_fault(const ToolResult& result, const std::string& text) const {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.output, "");
    EXPECT_TRUE(result.error.starts_with("error: ")) << result.error;
    EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
    EXPECT_THAT(result.error, HasSubstr(text));
  }
};

TEST_F(TokenizerCommand, TrainsEncodesAndDecodes) {
  const ToolResult trained =
      run({"train", path("text.txt"), "--vocab-size", "300", "--output", path("new/tokenizer")});
  EXPECT_EQ(trained.exit_code, 0) << trained.error;
  EXPECT_EQ(trained.output + trained.error, "");
  const std::string text = read("text.txt") + "\xFF\xE2\x96\x81\0 end"s;
  write("document", text);
  const ToolResult ids = run({"encode", path("new/tokenizer"), path("document")});
  EXPECT_EQ(ids.exit_code, 0) << ids.error;
  EXPECT_EQ(ids.output.find_first_not_of("0123456789 \n"), std::string::npos);
  EXPECT_LT(std::count(ids.output.begin(), ids.output.end(), ' ') * 3,
            static_cast<int64_t>(text.size()) * 2);
  // By file and by standard input, by folder and by model file.
  const std::string model = path("new/tokenizer/tokenizer.model");
  EXPECT_EQ(run({"encode", model}, text).output, ids.output);
  EXPECT_EQ(run({"decode", path("new/tokenizer")}, ids.output).output, text);
  EXPECT_EQ(run({"decode", model, write("ids", ids.output)}).output, text);
}

TEST_F(TokenizerCommand, HasATokenizerOfBytes) {
  ASSERT_EQ(run({"train", path("text.txt"), "--kind", "byte", "--output", path("bytes")}).exit_code,
            0);
  EXPECT_EQ(run({"encode", path("bytes")}, "hi\n").output, "104 105 10\n");
  EXPECT_EQ(run({"encode", path("bytes")}).output, "\n");
  EXPECT_EQ(run({"decode", path("bytes")}, " 104\n\t105  256 \n").output, "hi");
  EXPECT_EQ(run({"decode", path("bytes")}, "\n").output, "");
}

TEST_F(TokenizerCommand, ReadsTokenizersOfPublishedModels) {
  write("tokenizer.json", byte_level_json().dump());
  const std::string text = "the <|end|>";
  const std::string ids = run({"encode", path("tokenizer.json")}, text).output;
  EXPECT_TRUE(ids.ends_with(" 300\n")) << ids;
  EXPECT_EQ(run({"encode", path(".")}, text).output, ids);
  EXPECT_EQ(run({"decode", path("tokenizer.json")}, ids).output, "the ");
  EXPECT_EQ(run({"decode", path("tokenizer.json"), "--special"}, ids).output, text);
  const std::string plain = run({"encode", path("tokenizer.json"), "--plain"}, text).output;
  EXPECT_FALSE(plain.ends_with(" 300\n")) << plain;
  EXPECT_EQ(run({"decode", path("tokenizer.json")}, plain).output, text);
}

TEST_F(TokenizerCommand, ReadsTheTokenizerOfARun) {
  train("run", {"--set", "train.steps=1", "--set", "train.warmup_steps=0"});
  EXPECT_EQ(run({"encode", path("run")}, "hi").output, "104 105\n");
}

TEST_F(TokenizerCommand, FaultsAreOneLine) {
  run({"train", path("text.txt"), "--kind", "byte", "--output", path("bytes")});
  expect_fault(run({"decode", path("bytes")}, "1 two 3"), "word 2: 'two' is not an id");
  expect_fault(run({"decode", path("bytes")}, "1 2.5"), "word 2: '2.5' is not an id");
  expect_fault(run({"decode", path("bytes")}, "99999999999"), "word 1");
  expect_fault(run({"decode", path("bytes")}, "1 257"), "id 257 at position 1");
  expect_fault(run({"decode", path("bytes")}, "-1"), "id -1 at position 0");
  expect_fault(run({"encode", path("absent")}, "a"), "absent");
  expect_fault(run({"encode", path("bytes"), path("absent")}), "absent: No such file");
  expect_fault(run({"encode", path("text.txt")}, "a"), "text.txt: not a SentencePiece model");
  expect_fault(run({"train", path("absent"), "--output", path("t")}), "absent: No such file");
  expect_fault(run({"train", write("empty", ""), "--output", path("t")}), "empty");
  expect_fault(run({"train", path("text.txt"), "--vocab-size", "200", "--output", path("t")}),
               "vocabulary size is 200");
  expect_fault(run({"train", path("text.txt"), "--vocab-size", "9000", "--output", path("t")}),
               "the text is too small for 9000 pieces; take more text, or a vocabulary of at most");
  expect_fault(
      run({"train", path("text.txt"), "--vocab-size", "300", "--output", path("text.txt/t")}),
      "text.txt/t");
}

// Messages quote what is in files; a line break there must not break the line.
TEST_F(TokenizerCommand, QuotedLineBreaksStayInTheLine) {
  std::filesystem::create_directory(path("odd"));
  write("odd/tokenizer_config.json", R"({"a\nb\u001b[2J": 1, "a\nb\u001b[2J": 2})");
  const ToolResult result = run({"encode", path("odd")}, "a");
  expect_fault(result, "occurs twice");
  EXPECT_EQ(result.error.find('\x1B'), std::string::npos);
}

}  // namespace
}  // namespace dcformer::test
