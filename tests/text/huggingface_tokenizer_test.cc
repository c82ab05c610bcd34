#include "dcformer/text/huggingface_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "dcformer/base/file.h"
#include "dcformer/base/random.h"
#include "dcformer/text/stream_decoder.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/text/sample_tokenizers.h"

namespace dcformer {
namespace {

using namespace std::string_literals;
using test::expect_error;
using ::testing::ElementsAre;

using Json = nlohmann::json;

std::unique_ptr<HuggingFaceTokenizer> tokenizer_of(const Json& json) {
  return HuggingFaceTokenizer::parse(json.dump(), "tokenizer.json");
}

std::vector<std::string> awkward_texts() {
  std::vector<std::string> texts = {"",
                                    " ",
                                    "the caf\xC3\xA9 in the world",
                                    "  two  blanks ",
                                    "\r\n\t\0x"s,
                                    "\xFF",
                                    "a\xE2\x96 b",
                                    "\xE2\x96\x81 the\xE2\x96\x81",
                                    "\xED\xA0\x80\xC0\x80\xF5\x80 the",
                                    "<|end|> </s> <tool> <0x41>",
                                    "e\xCC\x81\xF0\x9F\x98\x80"};
  const Random random(5, 0);
  for (uint64_t i = 0; i < 30; ++i) {
    std::string bytes;
    for (uint64_t j = 0; j < 20 * i; ++j)
      bytes += static_cast<char>(random.below(1000 * i + j, i < 15 ? 256 : 128));
    texts.push_back(bytes);
  }
  return texts;
}

// Streaming gives what decode() gives, and no part of a character.
std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                     const DecodeOptions& options) {
  StreamDecoder stream(tokenizer, options);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

TEST(HuggingFaceTokenizer, GivesEveryTextBack) {
  for (const Json& json : {test::byte_level_json(), test::byte_fallback_json()}) {
    const auto tokenizer = tokenizer_of(json);
    for (const std::string& text : awkward_texts()) {
      // The mark of a blank stands for one: it is read as one.
      if (json["pre_tokenizer"].is_null() && text.find("\xE2\x96\x81") != text.npos) continue;
      for (const EncodeOptions options : {EncodeOptions{}, {false, true}, {true, true}}) {
        const auto ids = tokenizer->encode_with(text, options);
        if (!options.recognise_special) {
          EXPECT_EQ(tokenizer->decode(ids), text);
        }
        for (const bool keep : {false, true})
          EXPECT_EQ(streamed(*tokenizer, ids, {keep}), tokenizer->decode(ids, {keep}));
      }
      for (const int32_t id : tokenizer->encode(text))
        EXPECT_FALSE(tokenizer->token_bytes(id).empty()) << "special id " << id;
    }
  }
}

TEST(HuggingFaceTokenizer, MergesBytes) {
  const auto tokenizer = tokenizer_of(test::byte_level_json());
  EXPECT_EQ(tokenizer->kind(), "bpe");
  EXPECT_EQ(tokenizer->vocab_size(), 302);
  const auto words = tokenizer->encode(" the caf\xC3\xA9");
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(tokenizer->token_bytes(words[0]), " the");
  EXPECT_EQ(tokenizer->token_bytes(words[2]), "caf\xC3\xA9");
}

TEST(HuggingFaceTokenizer, RecognisesSpecialTokensOnlyWhenAsked) {
  const auto tokenizer = tokenizer_of(test::byte_level_json());
  EXPECT_THAT(tokenizer->encode_with("a<|end|>b", {false, true}), ElementsAre('a', 300, 'b'));
  EXPECT_EQ(tokenizer->encode("a<|end|>b").size(), 9u);
  // One that is not special is ordinary text.
  EXPECT_THAT(tokenizer->encode("a<tool>"), ElementsAre('a', 301));
  EXPECT_EQ(tokenizer->token_bytes(301), "<tool>");
  EXPECT_EQ(tokenizer->token_bytes(300), "");
  const std::vector<int32_t> ids = {'a', 300, 301};
  EXPECT_EQ(tokenizer->decode(ids), "a<tool>");
  EXPECT_EQ(tokenizer->decode(ids, {true}), "a<|end|><tool>");
}

TEST(HuggingFaceTokenizer, FallsBackToBytes) {
  const auto tokenizer = tokenizer_of(test::byte_fallback_json());
  EXPECT_THAT(tokenizer->encode("b\xC3\xA9"), ElementsAre(259, 261, 286));
  EXPECT_THAT(tokenizer->encode("\xC3\xA8"), ElementsAre(259, 3 + 0xC3, 3 + 0xA8));
  EXPECT_THAT(tokenizer->encode("b\xC3"), ElementsAre(259, 261, 3 + 0xC3));
  EXPECT_THAT(tokenizer->encode_with("<s>b</s>b", {true, true}),
              ElementsAre(1, 1, 259, 261, 2, 259, 261));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{1, 259, 261}, {true}), "<s> b");
  // The blank that begins a text is dropped, once.
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{1, 259, 261}), "b");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{259, 259, 261}), " b");
  EXPECT_EQ(tokenizer->end_of_document(), 2);
}

TEST(HuggingFaceTokenizer, ReadsCharactersWithoutATokenAsUnknown) {
  Json json = test::byte_fallback_json();
  json["model"]["byte_fallback"] = false;
  EXPECT_THAT(tokenizer_of(json)->encode("aXYb\xFF"), ElementsAre(259, 260, 0, 261, 0));
  json["model"]["fuse_unk"] = false;
  EXPECT_THAT(tokenizer_of(json)->encode("aXYb"), ElementsAre(259, 260, 0, 0, 261));
  json["model"]["unk_token"] = nullptr;
  EXPECT_THAT(tokenizer_of(json)->encode("aXYb"), ElementsAre(259, 260, 261));
  json["model"]["vocab"]["\xEF\xBF\xBD"] = 400;
  EXPECT_THAT(tokenizer_of(json)->encode("b\xE2\x96"), ElementsAre(259, 261, 400));
}

TEST(HuggingFaceTokenizer, IgnoresMergesOfWholeTokens) {
  Json json = test::byte_level_json();
  json["model"]["vocab"]["xyz"] = 290;
  json["model"]["vocab"]["<|"] = 291;
  json["model"]["vocab"]["<|end|>"] = 300;
  json["pre_tokenizer"]["use_regex"] = false;
  EXPECT_EQ(tokenizer_of(json)->encode("xyz").size(), 3u);
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(tokenizer_of(json)->encode("xyz"), ElementsAre(290));
  EXPECT_THAT(tokenizer_of(json)->encode("<|"), ElementsAre(291));
  // Not a special one, though.
  EXPECT_EQ(tokenizer_of(json)->encode("<|end|>").size(), 7u);
}

// Nothing may depend on the ids' size.
TEST(HuggingFaceTokenizer, TakesIdsWithHoles) {
  Json json = test::byte_level_json();
  json["model"]["vocab"]["a"] = 1000000000;
  json["added_tokens"][0]["id"] = INT32_MAX;
  const auto tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer->vocab_size(), int64_t{INT32_MAX} + 1);
  EXPECT_THAT(tokenizer->encode("xa"), ElementsAre('x', 1000000000));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{1000000000, 'a', 5000, 'x', INT32_MAX}, {true}),
            "ax<|end|>");
  EXPECT_EQ(tokenizer->token_bytes(999), "");
  expect_error(
      [&] {
        tokenizer->decode(std::vector<int32_t>{'x', -1});
      },
      {"id -1 at position 1 is outside the vocabulary of 2147483648"});
}

TEST(HuggingFaceTokenizer, TakesLongPiecesInGoodTime) {
  const auto bytes = tokenizer_of(test::byte_level_json());
  const auto marks = tokenizer_of(test::byte_fallback_json());
  for (const std::string& text :
       {std::string(1 << 20, 'a'), std::string(1 << 20, ' '), std::string(1 << 20, '\xFF')}) {
    EXPECT_TRUE(bytes->decode(bytes->encode(text)) == text);
    EXPECT_TRUE(marks->decode(marks->encode(text)) == text);
  }
  EXPECT_EQ(bytes->encode(std::string(1 << 20, 'a')).size(), size_t{1} << 18);
}

TEST(HuggingFaceTokenizer, EncodesOnSeveralThreads) {
  const auto tokenizer = tokenizer_of(test::byte_level_json());
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back("the words in text " + std::to_string(i * i));
  const std::vector<std::string_view> documents(texts.begin(), texts.end());
  Context context(2);
  const auto ids = tokenizer->encode_all(context, documents);
  ASSERT_EQ(ids.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(ids[i], tokenizer->encode(texts[i]));
}

// The cache forgets, and comes to the same results.
TEST(HuggingFaceTokenizer, TheCacheChangesNothing) {
  const auto tokenizer = tokenizer_of(test::byte_level_json());
  std::string text;
  for (int i = 0; i < 120000; ++i) text += " in" + std::to_string(i);
  const auto ids = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->encode(text), ids);
  EXPECT_TRUE(tokenizer->decode(ids) == text);
  const auto fresh = tokenizer_of(test::byte_level_json());
  EXPECT_EQ(fresh->encode(text.substr(text.size() - 8)),
            std::vector<int32_t>(ids.end() - 7, ids.end()));
}

TEST(HuggingFaceTokenizer, AddsWhatThePostProcessorsSay) {
  Json json = test::byte_level_json();
  json["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", {"x", 9}}, {"cls", {"y", 8}}};
  EXPECT_THAT(tokenizer_of(json)->encode_with("a", {true, false}), ElementsAre(8, 'a', 9));
  Json outer = test::byte_fallback_json()["post_processor"];
  json["post_processor"] = {{"type", "Sequence"}, {"processors", {json["post_processor"], outer}}};
  EXPECT_THAT(tokenizer_of(json)->encode_with("a", {true, false}), ElementsAre(1, 8, 'a', 9));
  EXPECT_THAT(tokenizer_of(json)->encode("a"), ElementsAre('a'));
}

TEST(HuggingFaceTokenizer, MarksBlanksByThePreTokenizer) {
  Json json = test::byte_fallback_json();
  const Json space = {
      {"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "first"}};
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = json["decoder"] = space;
  const auto tokenizer = tokenizer_of(json);
  EXPECT_THAT(tokenizer->encode("b b"), ElementsAre(259, 261, 259, 261));
  EXPECT_THAT(tokenizer->encode_with("b</s>b", {false, true}), ElementsAre(259, 261, 2, 261));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{259, 261, 259, 261}), "b b");
  EXPECT_EQ(streamed(*tokenizer, {2, 259, 261, 259}, {true}), "</s> b ");
  EXPECT_EQ(streamed(*tokenizer, {2, 259, 261, 259}, {false}), "b ");
}

TEST(HuggingFaceTokenizer, WorksOnCharactersBehindByteLevel) {
  Json json = test::byte_level_json();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {json["pre_tokenizer"],
        {{"type", "Split"}, {"pattern", {{"Regex", "[0-9]"}}}, {"behavior", "Isolated"}}}}};
  const auto tokenizer = tokenizer_of(json);
  for (const std::string& text : awkward_texts())
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  json["pre_tokenizer"]["pretokenizers"][1] = {{"type", "Metaspace"}, {"replacement", "_"}};
  expect_error([&] { tokenizer_of(json); }, {"behind ByteLevel", "only steps that cut"});
}

TEST(HuggingFaceTokenizer, RefusesIdsThatDisagree) {
  Json json = test::byte_level_json();
  json["added_tokens"][0]["id"] = 97;
  expect_error([&] { tokenizer_of(json); }, {"tokenizer.json: id 97", "'a'", "'<|end|>'"});
  json = test::byte_level_json();
  json["added_tokens"][1] = json["added_tokens"][0];
  expect_error([&] { tokenizer_of(json); }, {"added token '<|end|>' occurs twice"});
  json = test::byte_level_json();
  json["added_tokens"][0]["content"] = "a";
  expect_error([&] { tokenizer_of(json); }, {"added token 'a' has id 300", "gives it 97"});
  json = test::byte_level_json();
  json["model"]["vocab"]["b"] = 97;
  expect_error([&] { tokenizer_of(json); }, {"id 97 is that of 'a' and of 'b'"});
  json = test::byte_level_json();
  json["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", {"x", 999}}, {"cls", {"y", 8}}};
  expect_error([&] { tokenizer_of(json); }, {"id 999, which no token has"});
}

class TokenizerFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    replace_file(folder_ / name, bytes);
  }
  void write_vocab_and_merges() {
    const Json model = test::byte_level_json()["model"];
    Json vocab = model["vocab"];
    vocab["<|endoftext|>"] = 299;
    write("vocab.json", vocab.dump());
    std::string merges = "#version: 0.2\n";
    for (const Json& merge : model["merges"]) merges += merge.get<std::string>() + "\n";
    write("merges.txt", merges);
  }
  std::unique_ptr<Tokenizer> load() { return load_tokenizer(folder_.path()); }

  test::TemporaryFolder folder_;
};

TEST_F(TokenizerFolder, SavesWhatItHasRead) {
  write("tokenizer.json", test::byte_level_json().dump(1));
  write("tokenizer_config.json", R"({"eos_token": "<tool>", "chat_template": "{{ x }}"})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->end_of_document(), 301);
  // It stands for no bytes, whatever tokenizer.json says of it.
  EXPECT_EQ(tokenizer->token_bytes(301), "");
  const test::TemporaryFolder copy;
  tokenizer->save(copy.path());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(read_file(copy / name), read_file(folder_ / name));
  EXPECT_EQ(load_tokenizer(copy / "tokenizer.json")->encode("the"), tokenizer->encode("the"));
}

TEST_F(TokenizerFolder, ReadsVocabAndMerges) {
  write_vocab_and_merges();
  const auto tokenizer = load();
  const auto same = tokenizer_of(test::byte_level_json());
  EXPECT_EQ(tokenizer->encode(" the caf\xC3\xA9\xFF"), same->encode(" the caf\xC3\xA9\xFF"));
  EXPECT_EQ(tokenizer->end_of_document(), 299);
  EXPECT_THAT(tokenizer->encode_with("a<|endoftext|>", {true, true}), ElementsAre('a', 299));
}

TEST_F(TokenizerFolder, ReadsTheConfigurationBesideVocabAndMerges) {
  write_vocab_and_merges();
  write("tokenizer_config.json", R"({"tokenizer_class": "GPT2TokenizerFast",
    "add_prefix_space": true, "add_bos_token": true, "bos_token": {"content": "<|endoftext|>"},
    "eos_token": "<end>", "added_tokens_decoder": {"400": {"content": "<end>", "special": true}}})");
  write("added_tokens.json", R"({"<end>": 400, "<more>": 401})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->end_of_document(), 400);
  EXPECT_THAT(tokenizer->encode_with("x<end><more>", {true, true}),
              ElementsAre(299, ' ', 'x', 400, 401));
  write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_EQ(load()->decode(load()->encode("e\xCC\x81")), "\xC3\xA9");
  write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  expect_error([&] { load(); }, {"tokenizer_config.json", "LlamaTokenizer", "not supported"});
}

TEST_F(TokenizerFolder, NamesTheLineOfABrokenMerge) {
  write_vocab_and_merges();
  for (const char* line : {"a b c", "ab", "a  b"}) {
    write("merges.txt", "#version: 0.2\nh e\n\n"s + line + "\n");
    expect_error([&] { load(); }, {"merges.txt: line 4", line});
  }
  write("merges.txt", "h e\nq nothing\n");
  expect_error([&] { load(); }, {"vocab.json", "merges[1]: 'qnothing' is not in the vocabulary"});
  write("merges.txt", "");
  EXPECT_EQ(load()->encode("the").size(), 3u);
  write("vocab.json", "[]");
  expect_error([&] { load(); }, {"vocab.json: expected an object"});
  write("vocab.json", "");
  expect_error([&] { load(); }, {"vocab.json: not valid JSON"});
}

TEST_F(TokenizerFolder, TakesTheEndOfADocumentFromTheGenerationsConfiguration) {
  Json json = test::byte_level_json();
  json["added_tokens"].push_back(test::added_token(302, "<stop>", true));
  write("tokenizer.json", json.dump());
  EXPECT_EQ(load()->end_of_document(), -1);
  write("generation_config.json", R"({"eos_token_id": [302, 300]})");
  EXPECT_EQ(load()->end_of_document(), 302);
  write("generation_config.json", R"({"eos_token_id": 999})");
  EXPECT_EQ(load()->end_of_document(), -1);
  write("special_tokens_map.json", R"({"eos_token": "<|end|>"})");
  EXPECT_EQ(load()->end_of_document(), 300);
}

}  // namespace
}  // namespace dcformer
