// What tokenizer.json can have wrong: each fault is one error that names its place.
#include "dcformer/text/tokenizer_json.h"

#include <gtest/gtest.h>

#include "dcformer/text/huggingface_tokenizer.h"
#include "tests/io/expect_error.h"
#include "tests/text/sample_tokenizers.h"

namespace dcformer {
namespace {

using test::expect_error;
using Json = nlohmann::json;

void expect_broken(const Json& json, const std::vector<std::string>& parts) {
  expect_error([&] { HuggingFaceTokenizer::parse(json.dump(), "the file"); }, parts);
}

// The sample with the value at a JSON pointer replaced.
Json sample_with(const std::string& pointer, const Json& value) {
  Json json = test::byte_level_json();
  json[Json::json_pointer(pointer)] = value;
  return json;
}

TEST(TokenizerJson, SaysWhatIsNoJson) {
  const std::string whole = test::byte_level_json().dump();
  for (const size_t n : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1})
    expect_error([&] { HuggingFaceTokenizer::parse(whole.substr(0, n), "the file"); },
                 {"the file: not valid JSON"});
  expect_error([&] { HuggingFaceTokenizer::parse(std::string(1000, '['), "the file"); },
               {"the file", "nested deeper"});
  expect_error([&] { HuggingFaceTokenizer::parse("{\"a\": \"\xFF\"}", "the file"); },
               {"the file: not valid JSON"});
  for (const char* text : {"[]", "1", "null", "\"\""})
    expect_error([&] { HuggingFaceTokenizer::parse(text, "the file"); },
                 {"the file: expected a JSON object"});
  expect_broken(Json::object(), {"the file: model"});
}

TEST(TokenizerJson, SaysWhichIdIsNone) {
  for (const Json& id : {Json(-1), Json(2147483648), Json(1e300), Json(1.5), Json("7"), Json(),
                         Json(UINT64_MAX), Json::array({1})}) {
    expect_broken(sample_with("/model/vocab/q", id),
                  {"the file: model.vocab['q']: expected an id from 0 to 2147483647"});
    expect_broken(sample_with("/added_tokens/1/id", id),
                  {"the file: added_tokens[1].id: expected an id"});
  }
  expect_broken(sample_with("/model/vocab", Json::array()), {"model.vocab: expected an object"});
  expect_broken(sample_with("/model/vocab", nullptr), {"model.vocab: expected an object"});
}

TEST(TokenizerJson, SaysWhichMergeIsNone) {
  for (const Json& merge :
       {Json("a b c"), Json("ab"), Json(""), Json("a  b"), Json(3), Json(), Json::array({"a"}),
        Json::array({"a", "b", "c"}), Json::array({"a", 1})})
    expect_broken(sample_with("/model/merges/2", merge),
                  {"the file: model.merges[2]: expected two tokens", "got " + merge.dump()});
  expect_broken(sample_with("/model/merges/2", "q nothing"),
                {"the file: model.merges[2]: 'qnothing' is not in the vocabulary"});
  Json json = sample_with("/model/merges/2", "q nothing");
  json["model"]["vocab"]["qnothing"] = 280;
  expect_broken(json, {"the file: model.merges[2]: 'nothing' is not in the vocabulary"});
  expect_broken(sample_with("/model/merges", Json::object()), {"model.merges: expected a list"});
}

TEST(TokenizerJson, TakesMergesAsPairs) {
  Json json = test::byte_level_json();
  for (Json& merge : json["model"]["merges"]) {
    const auto text = merge.get<std::string>();
    merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  const std::string text = " the aaaaa in words caf\xC3\xA9";
  EXPECT_EQ(HuggingFaceTokenizer::parse(json.dump(), "pairs")->encode(text),
            HuggingFaceTokenizer::parse(test::byte_level_json().dump(), "strings")->encode(text));
}

TEST(TokenizerJson, SaysWhichKeyIsOfTheWrongKind) {
  expect_broken(sample_with("/model/type", "Unigram"), {"model.type", "BPE", "Unigram"});
  expect_broken(sample_with("/model/dropout", 0.1), {"model.dropout: expected none"});
  expect_broken(sample_with("/model/end_of_word_suffix", "</w>"), {"end_of_word_suffix"});
  expect_broken(sample_with("/model/byte_fallback", "yes"), {"byte_fallback: expected true"});
  expect_broken(sample_with("/model/unk_token", "nothing"), {"unk_token: 'nothing' is not in"});
  expect_broken(sample_with("/added_tokens", Json::object()), {"added_tokens: expected a list"});
  expect_broken(sample_with("/added_tokens/0/lstrip", 1), {"added_tokens[0].lstrip"});
  expect_broken(sample_with("/added_tokens/0/content", 1), {"added_tokens[0].content"});
  expect_broken(sample_with("/added_tokens/0/content", std::string(2000, 'x')),
                {"2000 bytes, expected at most 1024"});
  for (const char* key : {"normalizer", "pre_tokenizer", "decoder", "post_processor"}) {
    const std::string pointer = std::string("/") + key;
    expect_broken(sample_with(pointer, 3), {std::string(key) + ": expected a JSON object"});
    expect_broken(sample_with(pointer, Json::object()), {std::string(key) + ".type"});
    expect_broken(sample_with(pointer, {{"type", "Novel"}}), {std::string(key) + ".type", "Novel"});
    expect_broken(sample_with(pointer, {{"type", "Sequence"}}), {std::string(key), "a list"});
  }
}

TEST(TokenizerJson, SaysWhatATemplateLacks) {
  Json json = test::byte_fallback_json();
  const auto broken = [&](const std::string& pointer, const Json& value,
                          const std::vector<std::string>& parts) {
    Json copy = json;
    copy[Json::json_pointer("/post_processor" + pointer)] = value;
    expect_broken(copy, parts);
  };
  broken("/single", 3, {"post_processor.single: expected a list"});
  broken("/single", Json::array(), {"expected a Sequence for the text"});
  broken("/single/0", json["post_processor"]["single"][1], {"the text occurs twice"});
  broken("/single/0/SpecialToken/id", "<x>", {"special_tokens['<x>']: no such token"});
  broken("/special_tokens", nullptr, {"no such token"});
  broken("/special_tokens/<s>/ids", 3, {"ids: expected a list"});
  broken("/special_tokens/<s>/ids", {-3}, {"expected an id"});
  broken("/special_tokens/<s>/ids", std::vector<int>(2000, 1), {"adds more than 1024 ids"});
}

TEST(TokenizerJson, SaysWhatAStepLacks) {
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}};
  const auto broken = [&](const char* key, const Json& value,
                          const std::vector<std::string>& parts) {
    Json step = split;
    step[key] = value;
    expect_broken(sample_with("/pre_tokenizer", step), parts);
  };
  broken("pattern", nullptr, {"pre_tokenizer.pattern: expected a JSON object"});
  broken("pattern", {{"Regex", "(a"}}, {"pre_tokenizer.pattern", "not a regular expression"});
  broken("pattern", {{"Regex", ""}}, {"a pattern of 0 bytes"});
  broken("pattern", {{"String", 1}}, {"pattern.String: expected a text"});
  broken("behavior", "Sideways", {"behavior: expected one of", "Sideways"});
  expect_broken(sample_with("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}),
                {"replacement: expected a character"});
  Json many = {{"type", "Sequence"}, {"pretokenizers", std::vector<Json>(65, split)}};
  expect_broken(sample_with("/pre_tokenizer", many), {"more than 64 steps"});
  expect_broken(sample_with("/normalizer", {{"type", "Prepend"}}), {"normalizer.prepend"});
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", -1}};
  expect_broken(sample_with("/decoder", strip), {"decoder.start: expected a whole number"});
  const Json fused = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, split}}};
  expect_broken(sample_with("/decoder", fused), {"decoder.decoders[1]", "behind Fuse"});
}

// Steps that make more of a text each time must end, and soon.
TEST(TokenizerJson, BoundsWhatStepsMakeOfAText) {
  const Json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const Json steps = std::vector<Json>(60, twice);
  Json json = sample_with("/normalizer", {{"type", "Sequence"}, {"normalizers", steps}});
  json["added_tokens"].clear();
  expect_error([&] { HuggingFaceTokenizer::parse(json.dump(), "the file")->encode("a"); },
               {"makes a text too long"});
  expect_broken(sample_with("/decoder", {{"type", "Sequence"}, {"decoders", steps}}), {"too long"});
  std::vector<Json> marks;
  for (int i = 0; i < 30; ++i) {
    const std::string mark(1, i % 2 == 0 ? 'A' : 'B');
    marks.push_back({{"type", "Metaspace"}, {"replacement", mark}, {"split", false}});
    marks.push_back({{"type", "Split"}, {"pattern", {{"Regex", "."}}}, {"behavior", "Isolated"}});
  }
  json = sample_with("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", marks}});
  expect_error([&] { HuggingFaceTokenizer::parse(json.dump(), "the file")->encode("xyz"); },
               {"pre-tokenizer makes a text too long"});
}

TEST(TokenizerJson, EndsPatternsThatTryEverything) {
  for (const char* pattern : {"(a+)+$", "(a|aa)+$", "(?:a*)*b"}) {
    const auto tokenizer = HuggingFaceTokenizer::parse(
        sample_with(
            "/pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}})
            .dump(),
        "the file");
    // The b lies where no match can reach it, so that the pattern's last letter is no way out.
    expect_error([&] { tokenizer->encode(std::string(5000, 'a') + "!b!"); },
                 {"the file: pre_tokenizer.pattern", "cannot be searched for"});
  }
}

}  // namespace
}  // namespace dcformer
