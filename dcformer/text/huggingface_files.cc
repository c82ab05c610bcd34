#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/utf8.h"
#include "dcformer/io/json_file.h"
#include "dcformer/text/characters.h"
#include "dcformer/text/huggingface_tokenizer.h"
#include "dcformer/text/tokenizer_json.h"

namespace dcformer {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

// What the class of each name does with vocab.json and merges.txt, as parts of a tokenizer.json.
constexpr const char* kGpt2Steps = R"({"pre_tokenizer": {"type": "ByteLevel",
    "add_prefix_space": false}})";
constexpr const char* kQwen2Steps = R"({"normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex":
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
      "behavior": "Isolated"},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}})";
constexpr const char* kEndOfText = "<|endoftext|>";

Files read_files(const std::string& folder, const std::vector<std::string>& names) {
  Files files;
  for (const std::string& name : names)
    if (const std::string path = folder + "/" + name; fs::exists(path))
      files[name] = read_file(path);
  return files;
}

const std::vector<std::string> kFilesBeside = {"tokenizer_config.json", "special_tokens_map.json",
                                               "added_tokens.json", "chat_template.jinja"};

bool is_added(const TokenizerParts& parts, const std::string& text) {
  return std::any_of(parts.added_tokens.begin(), parts.added_tokens.end(),
                     [&](const AddedToken& token) { return token.content == text; });
}

// A token of the vocabulary that is special by what is said of it elsewhere.
void make_special(TokenizerParts& parts, const std::string& text) {
  if (is_added(parts, text)) return;
  const std::optional<int32_t> id = parts.id_of(text);
  if (!id) {
    spdlog::warn("{}: the special token {} is not in the vocabulary", parts.where, in_quotes(text));
    return;
  }
  AddedToken token;
  token.id = *id;
  token.content = text;
  token.special = true;
  parts.added_tokens.push_back(std::move(token));
}

void make_special(TokenizerParts& parts, const TokenizerConfig& config) {
  std::set<std::string> texts(config.additional_special.begin(), config.additional_special.end());
  for (const auto* token : {&config.bos, &config.eos, &config.pad, &config.unk})
    if (*token) texts.insert(**token);
  for (const std::string& text : texts) make_special(parts, text);
}

// What the configuration says, else the first id of the generation's, else a well-known name.
int32_t end_of_document(const TokenizerParts& parts, const TokenizerConfig& config,
                        const GenerationConfig& generation) {
  if (config.eos)
    if (const auto id = parts.id_of(*config.eos)) return *id;
  for (const AddedToken& token : parts.added_tokens)
    if (!generation.eos.empty() && token.id == generation.eos.front()) return token.id;
  for (const char* name : {kEndOfText, "</s>", "<eos>"})
    for (const AddedToken& token : parts.added_tokens)
      if (token.special && token.content == name) return token.id;
  return -1;
}

std::unique_ptr<HuggingFaceTokenizer> assemble(TokenizerParts parts, const TokenizerConfig& config,
                                               const GenerationConfig& generation, Files files) {
  parts.end_of_document = end_of_document(parts, config, generation);
  // It stands for no text.
  for (AddedToken& token : parts.added_tokens) token.special |= token.id == parts.end_of_document;
  return std::make_unique<HuggingFaceTokenizer>(std::move(parts), std::move(files));
}

// Lines "a b"; a line that begins with #version, and empty ones, are none.
std::vector<std::pair<std::string, std::string>> parse_merges(std::string_view text,
                                                              const std::string& where) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t blank = line.find(' ');
    require(blank != line.npos && line.find(' ', blank + 1) == line.npos,
            "{}: line {}: expected two tokens with a blank between, got '{}'", where, number,
            shorten_utf8(line, 60));
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  }
  return merges;
}

std::vector<VocabEntry> parse_vocab(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  require(json.is_object(), "{}: expected an object of ids by token", where);
  std::vector<VocabEntry> vocab;
  for (const auto& [token, id] : json.items())
    vocab.push_back({token, parse_token_id(id, fmt::format("{}: {}", where, in_quotes(token)))});
  return vocab;
}

nlohmann::json steps_of(const TokenizerConfig& config, const std::string& where) {
  std::string name = config.tokenizer_class;
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const bool is_gpt2 = name.empty() || name == "GPT2Tokenizer" || name == "CodeGenTokenizer";
  require(is_gpt2 || name == "Qwen2Tokenizer",
          "{}: vocab.json and merges.txt of a {} are not supported, expected a tokenizer.json, or "
          "the class GPT2Tokenizer, CodeGenTokenizer or Qwen2Tokenizer",
          where, shorten_utf8(name, 40));
  nlohmann::json json = nlohmann::json::parse(is_gpt2 ? kGpt2Steps : kQwen2Steps);
  if (is_gpt2) json["pre_tokenizer"]["add_prefix_space"] = config.add_prefix_space;
  return json;
}

}  // namespace

std::unique_ptr<HuggingFaceTokenizer> HuggingFaceTokenizer::parse(std::string text,
                                                                  const std::string& where) {
  TokenizerParts parts = parse_tokenizer_json(text, where);
  return assemble(std::move(parts), {}, {}, {{"tokenizer.json", std::move(text)}});
}

std::unique_ptr<HuggingFaceTokenizer> HuggingFaceTokenizer::read_file(const std::string& path) {
  return parse(dcformer::read_file(path), path);
}

std::unique_ptr<HuggingFaceTokenizer> HuggingFaceTokenizer::read_tokenizer_json(
    const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  if (!fs::exists(path)) return nullptr;
  const TokenizerConfig config = read_tokenizer_config(folder);
  Files files = read_files(folder, kFilesBeside);
  std::string& text = files["tokenizer.json"] = dcformer::read_file(path);
  TokenizerParts parts = parse_tokenizer_json(text, path);
  make_special(parts, config);
  return assemble(std::move(parts), config, read_generation_config(folder), std::move(files));
}

std::unique_ptr<HuggingFaceTokenizer> HuggingFaceTokenizer::read_vocab_and_merges(
    const std::string& folder) {
  const std::string vocab = folder + "/vocab.json";
  const std::string merges = folder + "/merges.txt";
  if (!fs::exists(vocab) || !fs::exists(merges)) return nullptr;
  const TokenizerConfig config = read_tokenizer_config(folder);
  Files files = read_files(folder, kFilesBeside);
  const std::string& vocab_text = files["vocab.json"] = dcformer::read_file(vocab);
  const std::string& merges_text = files["merges.txt"] = dcformer::read_file(merges);
  TokenizerParts parts;
  parts.where = vocab;
  parts.bpe.vocab = parse_vocab(vocab_text, vocab);
  parts.bpe.merges = parse_merges(merges_text, merges);
  parts.added_tokens = config.added_tokens;
  const nlohmann::json steps = steps_of(config, folder + "/tokenizer_config.json");
  parts.normalizer = parse_normalizer(steps.value("normalizer", nlohmann::json()), vocab);
  parts.pre_tokenizer = parse_pre_tokenizer(steps.at("pre_tokenizer"), vocab, parts.bpe.byte_level);
  parts.decoder = parse_decoder({}, vocab, parts.bpe.byte_level);
  make_special(parts, config);
  // What these classes take for it where nothing else is said.
  if (parts.id_of(kEndOfText)) make_special(parts, kEndOfText);
  if (config.add_bos_token && config.bos)
    if (const auto id = parts.id_of(*config.bos)) parts.prefix = {*id};
  return assemble(std::move(parts), config, read_generation_config(folder), std::move(files));
}

}  // namespace dcformer
