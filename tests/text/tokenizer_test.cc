#include "dcformer/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "dcformer/base/file.h"
#include "dcformer/base/random.h"
#include "dcformer/text/byte_tokenizer.h"
#include "dcformer/text/sentencepiece_tokenizer.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using namespace std::string_literals;
using test::expect_error;
using ::testing::ElementsAre;

const std::string kTrainingText = [] {
  std::string text;
  for (int i = 0; i < 60; ++i)
    text +=
        "It is a truth universally acknowledged, that a single man in possession of a good "
        "fortune, must be in want of a wife.\n  However little known the feelings or views of such "
        "a man may be — naïve \xE2\x96\x81 cafés\tand\xE5\xA4\xA9\xE5\x9C\xB0\r\n\n";
  return text;
}();

const SentencePieceTokenizer& trained() {
  static const auto tokenizer = SentencePieceTokenizer::train({kTrainingText}, 400);
  return *tokenizer;
}

std::string every_byte() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

std::string random_bytes(uint64_t stream, size_t n, uint64_t limit) {
  const Random random(11, stream);
  std::string bytes;
  for (size_t i = 0; i < n; ++i) bytes += static_cast<char>(random.below(i, limit));
  return bytes;
}

// Texts that the library alone changes, or that other tokenizers give a special meaning.
std::vector<std::string> awkward_texts() {
  std::vector<std::string> texts = {"",
                                    " ",
                                    "    four before, two  between, three after   ",
                                    "\n",
                                    "\n\n\n \n",
                                    "\r\n line \r\n",
                                    "\ttabs\t\tand\vothers\f",
                                    "\0"s,
                                    "a\0b\0\0c"s,
                                    "\xE2\x96\x81",
                                    " \xE2\x96\x81 \xE2\x96\x81\xE2\x96\x81the",
                                    "\xE2\x96",
                                    "\xEF\xBF\xBD and \xFF",
                                    "<s>",
                                    "</s><s><unk><pad>",
                                    "<0x41><0x0A>",
                                    "\xF0\x9F\x98\x80 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB",
                                    "e\xCC\x81 and \xC3\xA9 and \xEF\xAC\x81",
                                    "\xE2\x81\x87 \xE2\x80\x83\xC2\xA0",
                                    "\xED\xA0\x80\xC0\x80\xF5\x80",
                                    every_byte(),
                                    every_byte() + every_byte(),
                                    kTrainingText};
  for (uint64_t i = 0; i < 20; ++i) texts.push_back(random_bytes(i, 50 + 37 * i, 256));
  for (uint64_t i = 20; i < 30; ++i) texts.push_back(random_bytes(i, 500, 128));
  return texts;
}

void expect_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  EXPECT_TRUE(tokenizer.decode(ids) == text)
      << "text of " << text.size() << " bytes: " << ::testing::PrintToString(text.substr(0, 100));
  for (const int32_t id : ids) {
    EXPECT_NE(id, tokenizer.end_of_document());
    EXPECT_FALSE(tokenizer.token_bytes(id).empty()) << "special id " << id;
  }
}

TEST(ByteTokenizer, HasOneIdAByte) {
  const ByteTokenizer tokenizer;
  EXPECT_THAT(tokenizer.encode("a\n\xFF\0"s), ElementsAre(97, 10, 255, 0));
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.end_of_document(), 256);
  EXPECT_EQ(tokenizer.token_bytes(256), "");
  EXPECT_EQ(tokenizer.kind(), "byte");
  for (const std::string& text : awkward_texts()) expect_round_trip(tokenizer, text);
}

TEST(SentencePieceTokenizer, GivesEveryTextBack) {
  for (const std::string& text : awkward_texts()) expect_round_trip(trained(), text);
}

TEST(SentencePieceTokenizer, HasTheVocabularyAskedFor) {
  const SentencePieceTokenizer& tokenizer = trained();
  EXPECT_EQ(tokenizer.kind(), "bpe");
  EXPECT_EQ(tokenizer.vocab_size(), 400);
  ASSERT_GE(tokenizer.end_of_document(), 0);
  EXPECT_EQ(tokenizer.token_bytes(tokenizer.end_of_document()), "");
  std::set<std::string_view> singles;
  for (int32_t id = 0; id < 400; ++id)
    if (tokenizer.token_bytes(id).size() == 1) singles.insert(tokenizer.token_bytes(id));
  EXPECT_EQ(singles.size(), 256u);
}

TEST(SentencePieceTokenizer, CompressesWhatItWasTrainedOn) {
  const std::vector<int32_t> ids = trained().encode(kTrainingText);
  EXPECT_LT(ids.size() * 2, kTrainingText.size());
  // Words begin with their blank, whose bytes are a blank's and not U+2581's.
  const std::vector<int32_t> word = trained().encode(" man");
  ASSERT_EQ(word.size(), 1u);
  EXPECT_EQ(trained().token_bytes(word[0]), " man");
}

TEST(SentencePieceTokenizer, ALineBreakIsATokenOfItsOwn) {
  for (int32_t id = 0; id < 400; ++id) {
    const std::string_view bytes = trained().token_bytes(id);
    EXPECT_TRUE(bytes == "\n" || bytes.find('\n') == bytes.npos) << id;
  }
  EXPECT_EQ(trained().encode("\n\n").size(), 2u);
}

// Long texts are cut; the cuts must fall neither within a character nor lose anything.
TEST(SentencePieceTokenizer, GivesLongTextsBack) {
  std::string wide;
  while (wide.size() < 200000) wide += "天地";
  for (size_t shift = 0; shift < 3; ++shift) {
    const std::string text = std::string(shift, 'x') + wide;
    expect_round_trip(trained(), text);
    // A cut within a character would leave its whole part to the bytes.
    EXPECT_LT(trained().encode(text).size() * 2, text.size()) << shift;
  }
  expect_round_trip(trained(), std::string(150000, 'a'));
  expect_round_trip(trained(), std::string(150000, ' '));
  for (const size_t n : {4095, 4096, 4097, 65535, 65536, 65537})
    for (const char* end : {"", "\n", "\n\n", "b\n"})
      expect_round_trip(trained(), std::string(n, 'a') + end);
  std::string lines;
  while (lines.size() < 300000) lines += "a single man in possession\n";
  expect_round_trip(trained(), lines);
}

TEST(SentencePieceTokenizer, CutsChangeNoTokens) {
  // Lines that stand alone give the tokens that they give in a long text.
  std::string text;
  std::vector<int32_t> expected;
  for (int i = 0; i < 400; ++i) {
    const std::string line = "a good fortune, number " + std::to_string(i) + "\n";
    text += line;
    const std::vector<int32_t> ids = trained().encode(line);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(trained().encode(text), expected);
}

TEST(SentencePieceTokenizer, TrainingIsDeterministic) {
  const test::TemporaryFolder folder;
  std::string models[2];
  for (std::string& model : models) {
    SentencePieceTokenizer::train({kTrainingText, "and more\n"}, 350)->save(folder.path());
    model = read_file(folder / "tokenizer.model");
  }
  EXPECT_EQ(models[0], models[1]);
}

TEST(SentencePieceTokenizer, TrainingTakesAwkwardTexts) {
  std::vector<std::string> texts = {"", "no line break", std::string(20000, 'x'),
                                    "the \0 the \xE2\x81\x87 \xE2\x96\x81 the \t the\n"s};
  std::string wide;
  for (int i = 0; i < 2000; ++i) wide += "玄黄";
  texts.push_back(wide);
  for (int i = 0; i < 40; ++i) texts.push_back("such a single man in want\r\n" + std::to_string(i));
  const auto tokenizer = SentencePieceTokenizer::train(texts, 300);
  for (const std::string& text : texts) expect_round_trip(*tokenizer, text);
}

TEST(SentencePieceTokenizer, TrainingSaysWhatIsTooSmall) {
  expect_error([] { SentencePieceTokenizer::train({kTrainingText}, 299); },
               {"vocabulary size is 299", "300"});
  expect_error([] { SentencePieceTokenizer::train({kTrainingText}, (1 << 20) + 1); },
               {"vocabulary size is 1048577"});
  expect_error([] { SentencePieceTokenizer::train({}, 300); }, {"training text is empty"});
  expect_error(
      [] {
        SentencePieceTokenizer::train({"", "\n\n"}, 300);
      },
      {"training text is empty"});
  expect_error([] { SentencePieceTokenizer::train({"a few words\n"}, 5000); },
               {"the text is too small for", "--vocab-size"});
  // More characters than there is room for beside the bytes.
  std::string characters;
  for (int i = 0; i < 200; ++i)
    characters += {'\xE4', static_cast<char>(0xB8 + i / 64), static_cast<char>(0x80 + i % 64)};
  expect_error([&] { SentencePieceTokenizer::train({characters}, 300); }, {"training failed"});
}

TEST(Tokenizer, DecodingNamesIdsThatAreNone) {
  const auto expect_place = [](const Tokenizer& tokenizer, int32_t id) {
    const std::vector<int32_t> ids = {65, 66, id};
    expect_error([&] { tokenizer.decode(ids); },
                 {"id " + std::to_string(id) + " at position 2",
                  "vocabulary of " + std::to_string(tokenizer.vocab_size())});
  };
  for (const int32_t id : {-1, 257, INT32_MAX, INT32_MIN}) expect_place(ByteTokenizer(), id);
  for (const int32_t id : {-1, 400, INT32_MAX, INT32_MIN}) expect_place(trained(), id);
  EXPECT_EQ(trained().decode({}), "");
  EXPECT_EQ(ByteTokenizer().decode(std::vector<int32_t>{104, 256, 105}), "hi");
}

class LoadTokenizer : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  test::TemporaryFolder folder_;
};

TEST_F(LoadTokenizer, ReadsWhatWasSaved) {
  ByteTokenizer().save(folder_.path());
  EXPECT_EQ(load_tokenizer(folder_.path())->kind(), "byte");
  trained().save(folder_.path());
  for (const std::string& path : {folder_.path(), folder_ / "tokenizer.model"}) {
    const auto loaded = load_tokenizer(path);
    EXPECT_EQ(loaded->kind(), "bpe");
    EXPECT_EQ(loaded->vocab_size(), trained().vocab_size());
    EXPECT_EQ(loaded->end_of_document(), trained().end_of_document());
    EXPECT_EQ(loaded->encode(kTrainingText), trained().encode(kTrainingText));
  }
}

TEST_F(LoadTokenizer, SaysWhatItLookedFor) {
  expect_error([&] { load_tokenizer(folder_ / "absent"); }, {folder_ / "absent", "no such file"});
  expect_error([&] { load_tokenizer(folder_.path()); },
               {folder_.path(), "tokenizer.model", "tokenizer_config.json"});
  for (const char* config :
       {"{}", "[]", R"({"tokenizer_class": "LlamaTokenizer"})", R"({"tokenizer_class": 1})"}) {
    write("tokenizer_config.json", config);
    expect_error([&] { load_tokenizer(folder_.path()); }, {folder_.path(), "no tokenizer"});
  }
  write("tokenizer_config.json", "{");
  expect_error([&] { load_tokenizer(folder_.path()); },
               {"tokenizer_config.json", "not valid JSON"});
  const std::string broken = write("tokenizer.model", "not a model");
  expect_error([&] { load_tokenizer(folder_.path()); }, {broken, "not a SentencePiece model"});
}

}  // namespace
}  // namespace dcformer
