#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "dcformer/text/byte_level.h"

namespace dcformer::test {

/// An entry of `added_tokens` with all of its flags.
inline nlohmann::json added_token(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},   {"special", special},    {"lstrip", false},
          {"rstrip", false}, {"single_word", false}, {"normalized", !special}};
}

/// Adds merges, and the tokens that they make, to a model.
inline void add_merges(nlohmann::json& model,
                       const std::vector<std::pair<std::string, std::string>>& merges) {
  for (const auto& [left, right] : merges) {
    if (!model["vocab"].contains(left + right))
      model["vocab"][left + right] = model["vocab"].size();
    model["merges"].push_back(left + " " + right);
  }
}

/// A tokenizer.json in the form of GPT-2's: the 256 bytes (ids 0 … 255), some merges (up to 268),
/// `<|end|>` (300, special) and `<tool>` (301, not special).
inline nlohmann::json byte_level_json() {
  nlohmann::json model = {
      {"type", "BPE"}, {"vocab", nlohmann::json::object()}, {"merges", nlohmann::json::array()}};
  for (int byte = 0; byte < 256; ++byte)
    model["vocab"][bytes_to_characters(std::string(1, static_cast<char>(byte)))] = byte;
  const std::string blank = bytes_to_characters(" ");
  const std::string first = bytes_to_characters("\xC3");
  const std::string second = bytes_to_characters("\xA9");
  add_merges(model, {{blank, "t"},
                     {"h", "e"},
                     {blank + "t", "he"},
                     {"a", "a"},
                     {"aa", "aa"},
                     {"i", "n"},
                     {"e", "r"},
                     {first, second},
                     {"c", "a"},
                     {"ca", "f"},
                     {"caf", first + second},
                     {"o", "r"},
                     {"w", "or"}});
  return {{"version", "1.0"},
          {"added_tokens", {added_token(300, "<|end|>", true), added_token(301, "<tool>", false)}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", model}};
}

/// A tokenizer.json in the form that converted SentencePiece models have: `<unk>`, `<s>`, `</s>`,
/// the bytes `<0x00>` … `<0xFF>` (ids 3 … 258), letters, a mark for blanks, some merges.
inline nlohmann::json byte_fallback_json() {
  nlohmann::json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  const char* digits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    vocab[std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">"] = 3 + byte;
  const std::string mark = "\xE2\x96\x81";
  vocab[mark] = 259;
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = 260 + (c - 'a');
  vocab["\xC3\xA9"] = 286;
  nlohmann::json model = {{"type", "BPE"},     {"vocab", vocab},       {"merges", {}},
                          {"fuse_unk", true},  {"unk_token", "<unk>"}, {"byte_fallback", true},
                          {"dropout", nullptr}};
  add_merges(model, {{mark, "t"}, {"h", "e"}, {mark + "t", "he"}, {mark, mark}, {"a", "a"}});
  const nlohmann::json to_mark = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}};
  const nlohmann::json from_mark = {
      {"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}};
  const nlohmann::json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const nlohmann::json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const nlohmann::json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  return {
      {"added_tokens",
       {added_token(0, "<unk>", true), added_token(1, "<s>", true), added_token(2, "</s>", true)}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers", {{{"type", "Prepend"}, {"prepend", mark}}, to_mark}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {bos, text}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders", {from_mark, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}, strip}}}},
      {"model", model}};
}

}  // namespace dcformer::test
