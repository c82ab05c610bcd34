#include "dcformer/text/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include "dcformer/base/check.h"
#include "dcformer/base/utf8.h"
#include "dcformer/io/json_file.h"
#include "dcformer/text/characters.h"
#include "dcformer/text/tokenizer_config.h"

namespace dcformer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAddedIds = 1024;

// Takes the value of a key out of an object, or null: vocabularies are large, and not copied.
Json take(Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? Json() : std::exchange(*found, Json());
}

std::vector<VocabEntry> parse_vocab(const Json& json, const std::string& where) {
  require(json.is_object(), "{}: expected an object of ids by token", where);
  std::vector<VocabEntry> vocab;
  vocab.reserve(json.size());
  for (const auto& [text, id] : json.items())
    vocab.push_back(
        {text, id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX
                   ? static_cast<int32_t>(id.get<uint64_t>())
                   : parse_token_id(id, fmt::format("{}[{}]", where, in_quotes(text)))});
  return vocab;
}

std::pair<std::string, std::string> parse_merge(const Json& json, const std::string& where,
                                                size_t place) {
  const bool is_pair =
      json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string();
  if (is_pair) return {json[0].get<std::string>(), json[1].get<std::string>()};
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    const size_t blank = text.find(' ');
    if (blank != text.npos && text.find(' ', blank + 1) == text.npos)
      return {text.substr(0, blank), text.substr(blank + 1)};
  }
  fail("{}[{}]: expected two tokens, as 'a b' or [\"a\", \"b\"], got {}", where, place,
       shorten_utf8(json.dump(-1, ' ', false, Json::error_handler_t::replace), 60));
}

BpeParts parse_model(Json json, const std::string& where) {
  require(json.is_object(), "{}: expected a JSON object", where);
  const Json vocab = take(json, "vocab");
  const Json merges = take(json, "merges");
  JsonObject object(json, where);
  object.choice("type", "BPE", {"BPE"});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!object.text(key, "").empty()) object.fail_key(key, "none: it is not supported");
  if (object.number("dropout", 0, 0, 1) != 0) object.fail_key("dropout", "none");
  BpeParts parts;
  parts.byte_fallback = object.boolean("byte_fallback", false);
  parts.ignore_merges = object.boolean("ignore_merges", false);
  parts.fuse_unk = object.boolean("fuse_unk", false);
  if (object.has("unk_token")) parts.unk_token = object.text("unk_token", "");
  parts.vocab = parse_vocab(vocab, where + ".vocab");
  require(merges.is_array(), "{}.merges: expected a list", where);
  parts.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i)
    parts.merges.push_back(parse_merge(merges[i], where + ".merges", i));
  return parts;
}

std::vector<AddedToken> parse_added_tokens(const Json& json, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (json.is_null()) return tokens;
  require(json.is_array(), "{}: expected a list", where);
  for (size_t i = 0; i < json.size(); ++i) {
    JsonObject object(json[i], fmt::format("{}[{}]", where, i));
    tokens.push_back(parse_added_token(object));
    tokens.back().id = parse_token_id(object.raw("id"), object.where() + ".id");
  }
  return tokens;
}

void add_ids(std::vector<int32_t>& ids, const std::vector<int32_t>& more,
             const std::string& where) {
  require(ids.size() + more.size() <= kMaxAddedIds, "{}: adds more than {} ids", where,
          kMaxAddedIds);
  ids.insert(ids.end(), more.begin(), more.end());
}

/// The ids that post-processors put around a text, from the innermost outwards.
class PostProcessors {
 public:
  explicit PostProcessors(TokenizerParts& parts) : parts_(parts) {}

  void add(const Json& json, const std::string& where) {
    if (json.is_null()) return;
    JsonObject object(json, where);
    const std::string type = object.choice(
        "type", "",
        {"ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing", "Sequence"});
    if (type == "Sequence") {
      const Json& list = object.raw("processors");
      if (!list.is_array()) object.fail_key("processors", "a list");
      for (size_t i = 0; i < list.size(); ++i)
        add(list[i], fmt::format("{}.processors[{}]", where, i));
    } else if (type == "TemplateProcessing") {
      add_template(object);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      wrap({named_id(object, "cls")}, {named_id(object, "sep")}, where);
    } else if (type.empty()) {
      object.fail_key("type", "a post-processor's kind");
    }
  }

 private:
  void wrap(std::vector<int32_t> before, const std::vector<int32_t>& after,
            const std::string& where) {
    add_ids(before, parts_.prefix, where);
    parts_.prefix = std::move(before);
    add_ids(parts_.suffix, after, where);
  }

  // ["</s>", 2]
  int32_t named_id(JsonObject& object, const std::string& key) {
    const Json& pair = object.raw(key);
    if (!pair.is_array() || pair.size() != 2) object.fail_key(key, "a token and its id");
    return parse_token_id(pair[1], object.where() + "." + key);
  }

  void add_template(JsonObject& object) {
    const Json& single = object.raw("single");
    if (!single.is_array()) object.fail_key("single", "a list");
    const Json special = object.raw("special_tokens");
    std::vector<int32_t> before;
    std::vector<int32_t> after;
    bool text_seen = false;
    for (size_t i = 0; i < single.size(); ++i) {
      JsonObject piece(single[i], fmt::format("{}.single[{}]", object.where(), i));
      if (piece.has("Sequence")) {
        require(!text_seen, "{}: the text occurs twice", piece.where());
        text_seen = true;
      } else {
        JsonObject token(piece.raw("SpecialToken"), piece.where() + ".SpecialToken");
        add_ids(text_seen ? after : before, ids_of(special, token.text("id", ""), object.where()),
                object.where());
      }
    }
    require(text_seen, "{}.single: expected a Sequence for the text", object.where());
    wrap(std::move(before), after, object.where());
  }

  std::vector<int32_t> ids_of(const Json& special, const std::string& name,
                              const std::string& where) {
    const std::string here = fmt::format("{}.special_tokens[{}]", where, in_quotes(name));
    require(special.is_object() && special.contains(name), "{}: no such token", here);
    JsonObject token(special[name], here);
    const Json& list = token.raw("ids");
    if (!list.is_array()) token.fail_key("ids", "a list of ids");
    std::vector<int32_t> ids;
    for (const Json& id : list) ids.push_back(parse_token_id(id, here + ".ids"));
    return ids;
  }

  TokenizerParts& parts_;
};

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& where) {
  Json json = parse_json(text, where);
  require(json.is_object(), "{}: expected a JSON object", where);
  TokenizerParts parts;
  parts.where = where;
  parts.bpe = parse_model(take(json, "model"), where + ": model");
  parts.added_tokens = parse_added_tokens(take(json, "added_tokens"), where + ": added_tokens");
  parts.normalizer = parse_normalizer(take(json, "normalizer"), where + ": normalizer");
  parts.pre_tokenizer = parse_pre_tokenizer(take(json, "pre_tokenizer"), where + ": pre_tokenizer",
                                            parts.bpe.byte_level);
  parts.decoder = parse_decoder(take(json, "decoder"), where + ": decoder", parts.bpe.byte_level);
  PostProcessors(parts).add(take(json, "post_processor"), where + ": post_processor");
  return parts;
}

}  // namespace dcformer
