#include "dcformer/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "dcformer/text/byte_tokenizer.h"
#include "dcformer/text/sentencepiece_tokenizer.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using ::testing::ElementsAre;

class CorpusTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  /// The length of the training part of a text.
  size_t cut_of(const std::string& text) {
    const TextSplit split = read_text_split({write("text.txt", text)});
    EXPECT_EQ(split.training[0] + split.validation[0], text);
    return split.training[0].size();
  }
  test::TemporaryFolder folder_;
  Context context_{2};
};

// `n` bytes without a line break but at the given places.
std::string text_of(size_t n, const std::vector<size_t>& breaks) {
  std::string text(n, 'a');
  for (const size_t place : breaks) text[place] = '\n';
  return text;
}

// The rule: cut after the first newline at or past byte floor(0.95·n). By hand:
TEST_F(CorpusTest, CutsBehindTheFirstLineBreakAtOrPastTheMark) {
  // floor(0.95·100) = 95.
  EXPECT_EQ(cut_of(text_of(100, {94, 95, 97, 99})), 96u);
  EXPECT_EQ(cut_of(text_of(100, {94, 96, 99})), 97u);
  EXPECT_EQ(cut_of(text_of(100, {94, 99})), 100u);
  EXPECT_EQ(cut_of(text_of(100, {94})), 100u);
  // floor(0.95·39) = floor(37.05) = 37; floor(0.95·41) = floor(38.95) = 38.
  EXPECT_EQ(cut_of(text_of(39, {36, 37, 38})), 38u);
  EXPECT_EQ(cut_of(text_of(41, {37, 38, 39})), 39u);
  // floor(0.95·19) = 18, floor(0.95·20) = 19, floor(0.95·21) = 19: the first place is the last.
  EXPECT_EQ(cut_of(text_of(19, {17, 18})), 19u);
  EXPECT_EQ(cut_of(text_of(20, {18, 19})), 20u);
  EXPECT_EQ(cut_of(text_of(21, {18, 19, 20})), 20u);
  EXPECT_EQ(cut_of("a"), 1u);
  EXPECT_EQ(cut_of("\n"), 1u);
}

TEST_F(CorpusTest, TheMarkIsTheFloorForEveryLength) {
  for (size_t n = 1; n < 500; ++n) {
    std::vector<size_t> everywhere;
    for (size_t i = 0; i < n; ++i) everywhere.push_back(i);
    ASSERT_EQ(cut_of(text_of(n, everywhere)), 95 * n / 100 + 1) << n;
  }
}

TEST_F(CorpusTest, EachFileIsCutByItself) {
  const std::string a = write("a.txt", text_of(40, {38, 39}));
  const std::string b = write("b.txt", "b\nb\n");
  const TextSplit split = read_text_split({a, b});
  EXPECT_EQ(split.training[0].size(), 39u);
  EXPECT_EQ(split.validation[0], "\n");
  EXPECT_EQ(split.training[1], "b\nb\n");
  EXPECT_EQ(split.validation[1], "");
}

TEST_F(CorpusTest, NamesTheFileThatFails) {
  const std::string good = write("good.txt", "good\n");
  const std::string bad = write("bad.txt", "bad \xFF\n");
  test::expect_error([&] { read_text_split({good, bad}); }, {bad, "byte offset 4"});
  test::expect_error([&] { read_text_split({good, folder_ / "absent"}); }, {folder_ / "absent"});
}

TEST_F(CorpusTest, DocumentsEndWithTheirToken) {
  const TokenStream stream = tokenize(context_, ByteTokenizer(), {"ab", "", "c"});
  EXPECT_THAT(stream.ids, ElementsAre('a', 'b', 256, 'c', 256));
  EXPECT_EQ(stream.bytes, 3);
  EXPECT_TRUE(tokenize(context_, ByteTokenizer(), {}).ids.empty());
  EXPECT_TRUE(tokenize(context_, ByteTokenizer(), {"", ""}).ids.empty());
}

// Long documents are encoded in parts side by side.
TEST_F(CorpusTest, PartsGiveTheTokensOfTheWhole) {
  std::string text;
  for (int i = 0; text.size() < 400000; ++i)
    text += "line " + std::to_string(i * 7919 % 10007) + " of a naïve text\n";
  const auto tokenizer = SentencePieceTokenizer::train({text.substr(0, 20000)}, 320);
  const TokenStream stream = tokenize(context_, *tokenizer, {text, text});
  EXPECT_EQ(stream.bytes, static_cast<int64_t>(2 * text.size()));
  std::vector<int32_t> expected = tokenizer->encode(text);
  expected.push_back(tokenizer->end_of_document());
  const size_t n = expected.size();
  ASSERT_EQ(stream.ids.size(), 2 * n);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), stream.ids.begin()));
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), stream.ids.begin() + n));
  Context one(1);
  EXPECT_EQ(tokenize(one, *tokenizer, {text, text}).ids, stream.ids);
}

}  // namespace
}  // namespace dcformer
