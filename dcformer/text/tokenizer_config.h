#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dcformer/io/json_object.h"
#include "dcformer/text/added_tokens.h"

namespace dcformer {

/// What the files beside a tokenizer say of it.
struct TokenizerConfig {
  /// The class of the published Python code, or "".
  std::string tokenizer_class;
  /// The texts of the special tokens.
  std::optional<std::string> bos, eos, pad, unk;
  std::vector<std::string> additional_special;
  bool add_prefix_space = false;
  bool add_bos_token = false;
  /// `added_tokens_decoder`, and `added_tokens.json`.
  std::vector<AddedToken> added_tokens;
  /// Chat templates' texts by name; a single one is called "default".
  std::map<std::string, std::string> chat_templates;
};

/// Reads `tokenizer_config.json`, `special_tokens_map.json` (for what the first leaves open),
/// `added_tokens.json` and `chat_template.jinja` (which wins over the first file's) of a folder,
/// as far as they are there. Throws Error naming the file and the key for values of another form
/// than the Python library transformers writes.
TokenizerConfig read_tokenizer_config(const std::string& folder);

/// Token ids of generation_config.json; a single id is a list of one.
struct GenerationConfig {
  std::vector<int32_t> bos, eos, pad;
};

/// Reads `generation_config.json` of a folder; empty where it is missing. Throws Error naming the
/// key for what is no id or list of ids.
GenerationConfig read_generation_config(const std::string& folder);

/// An added token's text and flags, without its id: an object as in tokenizer.json. `normalized`
/// is by default the opposite of `special`.
AddedToken parse_added_token(JsonObject& json);

/// A number from 0 to 2^31-1. Throws Error naming `where`.
int32_t parse_token_id(const nlohmann::json& json, const std::string& where);

}  // namespace dcformer
