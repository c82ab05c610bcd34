#include <algorithm>
#include <map>

#include "dcformer/base/check.h"
#include "dcformer/base/utf8.h"
#include "dcformer/text/tokenizer_json.h"

namespace dcformer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxSteps = 64;
constexpr int64_t kMaxStripped = 1 << 20;

// The pattern of the byte-level pre-tokenizer, from the GPT-2 code.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// ASCII's punctuation and Unicode's.
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^`|~])";

// Words, of which joiners are a part, and what is neither a word nor white space.
constexpr std::string_view kWords = R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)";

std::string required_text(JsonObject& object, const std::string& key) {
  if (!object.has(key)) object.fail_key(key, "a text");
  return object.text(key, "");
}

std::string required_character(JsonObject& object, const std::string& key) {
  const std::string text = required_text(object, key);
  if (text.empty() || utf8_front(text).length != text.size()) object.fail_key(key, "a character");
  return text;
}

// {"String": "…"} or {"Regex": "…"}
Pattern parse_pattern(JsonObject& object) {
  JsonObject pattern(object.raw("pattern"), object.where() + ".pattern");
  if (pattern.has("Regex"))
    return {pattern.text("Regex", ""), Pattern::Kind::regex, pattern.where()};
  return {required_text(pattern, "String"), Pattern::Kind::literal, pattern.where()};
}

// Calls f for the object, or one by one for those of the Sequences in it.
template <typename F>
void for_each_step(const Json& json, const std::string& where, const std::string& list_key, F&& f) {
  if (json.is_null()) return;
  JsonObject object(json, where);
  const std::string type = required_text(object, "type");
  if (type != "Sequence") return f(type, object);
  const Json& list = object.raw(list_key);
  if (!list.is_array()) object.fail_key(list_key, "a list");
  for (size_t i = 0; i < list.size(); ++i)
    for_each_step(list[i], fmt::format("{}.{}[{}]", where, list_key, i), list_key, f);
}

void require_few(size_t n, const std::string& where) {
  require(n <= kMaxSteps, "{}: more than {} steps", where, kMaxSteps);
}

SplitBehavior parse_behavior(JsonObject& object) {
  static const std::map<std::string, SplitBehavior> behaviors = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  std::vector<std::string> names;
  for (const auto& [name, behavior] : behaviors) names.push_back(name);
  return behaviors.at(object.choice("behavior", "Isolated", names));
}

SplitAt split_at(std::string_view regex, SplitBehavior behavior, const std::string& where,
                 bool invert = false) {
  return {Pattern(regex, Pattern::Kind::regex, where), behavior, invert};
}

// `add_prefix_space` is the older form of `prepend_scheme`.
MarkBlanks::Prepend parse_prepend(JsonObject& object) {
  const bool adds = object.boolean("add_prefix_space", true);
  const std::string scheme =
      object.choice("prepend_scheme", adds ? "always" : "never", {"always", "first", "never"});
  if (scheme == "never" || !adds) return MarkBlanks::Prepend::never;
  return scheme == "first" ? MarkBlanks::Prepend::first : MarkBlanks::Prepend::always;
}

/// Collects the steps of a pre-tokenizer.
class PreTokenizerReader {
 public:
  void add(const std::string& type, JsonObject& object) {
    const std::string& where = object.where();
    if (type == "ByteLevel") {
      add_byte_level(object);
    } else if (type == "Split") {
      const SplitBehavior behavior = parse_behavior(object);
      add(SplitAt{parse_pattern(object), behavior, object.boolean("invert", false)}, where);
    } else if (type == "Metaspace") {
      add_metaspace(object);
    } else if (type == "Digits") {
      const bool single = object.boolean("individual_digits", false);
      add(split_at(single ? R"(\p{N})" : R"(\p{N}+)", SplitBehavior::isolated, where), where);
    } else if (type == "Punctuation") {
      add(split_at(kPunctuation, parse_behavior(object), where), where);
    } else if (type == "Whitespace") {
      add(split_at(kWords, SplitBehavior::removed, where, true), where);
    } else if (type == "WhitespaceSplit") {
      add(split_at(R"(\s)", SplitBehavior::removed, where), where);
    } else {
      object.fail_key("type",
                      "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, "
                      "WhitespaceSplit or Sequence (others are not supported)");
    }
  }

  // Nothing behind it: bytes stay bytes, and the model reads them.
  PreTokenizer result(bool& byte_level, const std::string& where) {
    byte_level = map_at_.has_value();
    if (byte_level && *map_at_ + 1 == steps_.size()) {
      steps_.pop_back();
    } else if (byte_level) {
      for (size_t i = *map_at_ + 1; i < steps_.size(); ++i)
        require(std::holds_alternative<SplitAt>(steps_[i]),
                "{}: behind ByteLevel stands a step that rewrites, expected only steps that cut",
                where);
      steps_.emplace_back(MapBytes{true});
    }
    PreTokenizer made;
    for (PreTokenizer::Step& step : steps_) made.add(std::move(step));
    return made;
  }

 private:
  void add(PreTokenizer::Step step, const std::string& where) {
    steps_.push_back(std::move(step));
    require_few(steps_.size(), where);
  }

  void add_byte_level(JsonObject& object) {
    const std::string& where = object.where();
    require(!map_at_, "{}: a second ByteLevel", where);
    if (object.boolean("add_prefix_space", true)) add(PrependBlank{}, where);
    if (object.boolean("use_regex", true))
      add(split_at(kGpt2Pattern, SplitBehavior::isolated, where), where);
    map_at_ = steps_.size();
    add(MapBytes{}, where);
  }

  void add_metaspace(JsonObject& object) {
    const std::string& where = object.where();
    const std::string mark = required_character(object, "replacement");
    add(MarkBlanks{mark, parse_prepend(object)}, where);
    if (object.boolean("split", true))
      add(SplitAt{Pattern(mark, Pattern::Kind::literal, where), SplitBehavior::merged_with_next},
          where);
  }

  std::vector<PreTokenizer::Step> steps_;
  /// The place of the step that maps bytes.
  std::optional<size_t> map_at_;
};

/// Collects the steps of a decoder.
class DecoderReader {
 public:
  void add(const std::string& type, JsonObject& object) {
    if (type == "Fuse") {
      fused_ = true;
    } else if (type == "Strip") {
      add_strip(object);
    } else {
      require(!fused_, "{}: behind Fuse or ByteLevel stands {}, expected only Strip",
              object.where(), shorten_utf8(type, 40));
      add_token_step(type, object);
    }
    require_few(plan_.steps.size(), object.where());
  }

  TokenDecoder::Plan result() { return std::move(plan_); }

 private:
  void add_token_step(const std::string& type, JsonObject& object) {
    if (type == "ByteLevel") {
      plan_.steps.emplace_back(DecodeByteLevel{});
      fused_ = true;
    } else if (type == "Replace") {
      Pattern pattern = parse_pattern(object);
      plan_.steps.emplace_back(
          ReplaceMatches{std::move(pattern), required_text(object, "content")});
    } else if (type == "ByteFallback") {
      plan_.steps.emplace_back(DecodeByteTokens{});
    } else if (type == "Metaspace") {
      plan_.steps.emplace_back(DecodeMarks{required_character(object, "replacement"),
                                           parse_prepend(object) != MarkBlanks::Prepend::never});
    } else {
      object.fail_key("type",
                      "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace or Sequence "
                      "(others are not supported)");
    }
  }

  void add_strip(JsonObject& object) {
    StripEnds strip{required_character(object, "content"),
                    object.integer("start", 0, 0, kMaxStripped),
                    object.integer("stop", 0, 0, kMaxStripped)};
    if (!fused_) {
      plan_.steps.emplace_back(std::move(strip));
      return;
    }
    require(plan_.strip.content.empty(), "{}: a second Strip of the whole text", object.where());
    plan_.strip = std::move(strip);
  }

  TokenDecoder::Plan plan_;
  /// Whether steps see the whole text, not token by token.
  bool fused_ = false;
};

}  // namespace

Normalizer parse_normalizer(const Json& json, const std::string& where) {
  static const std::map<std::string, UnicodeForm> forms = {{"NFC", UnicodeForm::nfc},
                                                           {"NFD", UnicodeForm::nfd},
                                                           {"NFKC", UnicodeForm::nfkc},
                                                           {"NFKD", UnicodeForm::nfkd}};
  Normalizer normalizer;
  for_each_step(json, where, "normalizers", [&](const std::string& type, JsonObject& object) {
    const auto form = forms.find(type);
    if (form != forms.end()) {
      normalizer.add(form->second);
    } else if (type == "Prepend") {
      normalizer.add(PrependText{required_text(object, "prepend")});
    } else if (type == "Replace") {
      Pattern pattern = parse_pattern(object);
      normalizer.add(ReplaceMatches{std::move(pattern), required_text(object, "content")});
    } else {
      object.fail_key("type",
                      "NFC, NFD, NFKC, NFKD, Prepend, Replace or Sequence (others are not "
                      "supported)");
    }
    require_few(normalizer.size(), object.where());
  });
  return normalizer;
}

PreTokenizer parse_pre_tokenizer(const Json& json, const std::string& where, bool& byte_level) {
  PreTokenizerReader reader;
  for_each_step(json, where, "pretokenizers",
                [&](const std::string& type, JsonObject& object) { reader.add(type, object); });
  return reader.result(byte_level, where);
}

TokenDecoder::Plan parse_decoder(const Json& json, const std::string& where, bool byte_level) {
  DecoderReader reader;
  for_each_step(json, where, "decoders",
                [&](const std::string& type, JsonObject& object) { reader.add(type, object); });
  TokenDecoder::Plan plan = reader.result();
  if (!json.is_null()) return plan;
  if (byte_level) {
    plan.steps.emplace_back(DecodeByteLevel{});
  } else {
    plan.separator.push_back(' ');
  }
  return plan;
}

}  // namespace dcformer
