#include "dcformer/text/tokenizer_config.h"

#include <charconv>
#include <filesystem>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/utf8.h"
#include "dcformer/io/json_file.h"
#include "dcformer/text/characters.h"

namespace dcformer {
namespace {

namespace fs = std::filesystem;

std::string shortened(const nlohmann::json& value) {
  return shorten_utf8(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 60);
}

// A text, or an object of an added token.
std::optional<std::string> token_text(const nlohmann::json& json, const std::string& where) {
  if (json.is_null()) return std::nullopt;
  if (json.is_string()) return json.get<std::string>();
  require(json.is_object(), "{}: expected a token as a text or an object, got {}", where,
          shortened(json));
  JsonObject object(json, where);
  return parse_added_token(object).content;
}

// The special tokens that are not known yet.
void read_special_tokens(JsonObject& json, TokenizerConfig& config) {
  const auto read = [&](const char* key, std::optional<std::string>& token) {
    if (!token) token = token_text(json.raw(key), json.where() + "." + key);
  };
  read("bos_token", config.bos);
  read("eos_token", config.eos);
  read("pad_token", config.pad);
  read("unk_token", config.unk);
  const std::string key = "additional_special_tokens";
  const nlohmann::json& list = json.raw(key);
  if (list.is_null()) return;
  if (!list.is_array()) json.fail_key(key, "a list of tokens");
  for (size_t i = 0; i < list.size(); ++i) {
    const auto text = token_text(list[i], fmt::format("{}.{}[{}]", json.where(), key, i));
    if (text) config.additional_special.push_back(*text);
  }
}

void read_added_tokens_decoder(JsonObject& json, TokenizerConfig& config) {
  const std::string key = "added_tokens_decoder";
  const nlohmann::json& tokens = json.raw(key);
  if (tokens.is_null()) return;
  if (!tokens.is_object()) json.fail_key(key, "an object of tokens by id");
  for (const auto& [text, value] : tokens.items()) {
    const std::string where = fmt::format("{}.{}[{}]", json.where(), key, in_quotes(text));
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    require(error == std::errc() && end == text.data() + text.size() && id >= 0,
            "{}: the key is no id from 0 to {}", where, INT32_MAX);
    JsonObject object(value, where);
    config.added_tokens.push_back(parse_added_token(object));
    config.added_tokens.back().id = id;
  }
}

void read_chat_templates(JsonObject& json, TokenizerConfig& config) {
  const std::string key = "chat_template";
  const nlohmann::json& value = json.raw(key);
  if (value.is_null()) return;
  if (value.is_string()) {
    config.chat_templates["default"] = value.get<std::string>();
    return;
  }
  if (!value.is_array()) json.fail_key(key, "a text or a list of named templates");
  for (size_t i = 0; i < value.size(); ++i) {
    JsonObject entry(value[i], fmt::format("{}.{}[{}]", json.where(), key, i));
    for (const char* needed : {"name", "template"})
      if (!entry.has(needed)) entry.fail_key(needed, "a text");
    const std::string name = entry.text("name", "");
    config.chat_templates[name] = entry.text("template", "");
  }
}

// Ids by text. What tokenizer_config.json lists has its flags there.
void read_added_tokens(const std::string& path, TokenizerConfig& config) {
  const nlohmann::json json = read_json_file(path);
  require(json.is_object(), "{}: expected an object of ids by token, got {}", path,
          shortened(json));
  const auto is_known = [&](const std::string& text) {
    for (const AddedToken& token : config.added_tokens)
      if (token.content == text) return true;
    return false;
  };
  std::vector<AddedToken> fresh;
  for (const auto& [text, value] : json.items()) {
    AddedToken token;
    token.content = text;
    token.id = parse_token_id(value, fmt::format("{}: {}", path, in_quotes(text)));
    token.normalized = true;
    if (!is_known(text)) fresh.push_back(std::move(token));
  }
  config.added_tokens.insert(config.added_tokens.end(), fresh.begin(), fresh.end());
}

std::vector<int32_t> read_ids(JsonObject& json, const std::string& key) {
  const nlohmann::json& value = json.raw(key);
  const std::string where = json.where() + "." + key;
  if (value.is_null()) return {};
  if (!value.is_array()) return {parse_token_id(value, where)};
  std::vector<int32_t> ids;
  for (size_t i = 0; i < value.size(); ++i)
    ids.push_back(parse_token_id(value[i], fmt::format("{}[{}]", where, i)));
  return ids;
}

}  // namespace

AddedToken parse_added_token(JsonObject& json) {
  AddedToken token;
  if (!json.has("content")) json.fail_key("content", "a text");
  token.content = json.text("content", "");
  token.special = json.boolean("special", false);
  token.lstrip = json.boolean("lstrip", false);
  token.rstrip = json.boolean("rstrip", false);
  token.single_word = json.boolean("single_word", false);
  token.normalized = json.boolean("normalized", !token.special);
  return token;
}

int32_t parse_token_id(const nlohmann::json& json, const std::string& where) {
  const bool is_id = json.is_number_unsigned() && json.get<uint64_t>() <= INT32_MAX;
  require(is_id, "{}: expected an id from 0 to {}, got {}", where, INT32_MAX, shortened(json));
  return static_cast<int32_t>(json.get<uint64_t>());
}

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  TokenizerConfig config;
  const std::string main = folder + "/tokenizer_config.json";
  if (fs::exists(main)) {
    JsonObject json(read_json_file(main), main);
    config.tokenizer_class = json.text("tokenizer_class", "");
    config.add_prefix_space = json.boolean("add_prefix_space", false);
    config.add_bos_token = json.boolean("add_bos_token", false);
    read_special_tokens(json, config);
    read_added_tokens_decoder(json, config);
    read_chat_templates(json, config);
  }
  const std::string map = folder + "/special_tokens_map.json";
  if (fs::exists(map)) {
    JsonObject json(read_json_file(map), map);
    read_special_tokens(json, config);
  }
  const std::string added = folder + "/added_tokens.json";
  if (fs::exists(added)) read_added_tokens(added, config);
  const std::string chat = folder + "/chat_template.jinja";
  if (fs::exists(chat)) config.chat_templates["default"] = read_file(chat);
  return config;
}

GenerationConfig read_generation_config(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  if (!fs::exists(path)) return {};
  JsonObject json(read_json_file(path), path);
  GenerationConfig config;
  config.bos = read_ids(json, "bos_token_id");
  config.eos = read_ids(json, "eos_token_id");
  config.pad = read_ids(json, "pad_token_id");
  return config;
}

}  // namespace dcformer
