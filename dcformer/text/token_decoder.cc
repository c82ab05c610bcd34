#include "dcformer/text/token_decoder.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "dcformer/base/check.h"
#include "dcformer/text/byte_level.h"

namespace dcformer {
namespace {

constexpr size_t kGrowth = 64;
constexpr size_t kGrowthBesides = size_t{1} << 20;

std::optional<char> byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || !text.ends_with('>')) return std::nullopt;
  unsigned byte = 0;
  const char* end = text.data() + 5;
  if (std::from_chars(text.data() + 3, end, byte, 16).ptr != end) return std::nullopt;
  return static_cast<char>(byte);
}

std::string without_marks(std::string_view text, const std::string& mark,
                          std::string_view instead) {
  std::string out;
  while (!text.empty()) {
    const bool marked = text.starts_with(mark);
    out += marked ? instead : text.substr(0, 1);
    text.remove_prefix(marked ? mark.size() : 1);
  }
  return out;
}

std::string_view stripped(std::string_view text, const StripEnds& strip) {
  for (int64_t i = 0; i < strip.start && text.starts_with(strip.content); ++i)
    text.remove_prefix(strip.content.size());
  for (int64_t i = 0; i < strip.stop && text.ends_with(strip.content); ++i)
    text.remove_suffix(strip.content.size());
  return text;
}

}  // namespace

TokenDecoder::TokenDecoder(TokenTable tokens, Plan plan, const std::string& where)
    : tokens_(std::move(tokens)), plan_(std::move(plan)) {
  size_t total = 0;
  for (const TokenTable::Token& token : tokens_.tokens()) total += token.text.size();
  const size_t limit = kGrowth * total + kGrowthBesides;
  const auto drops_first = [](const Step& step) {
    const auto* marks = std::get_if<DecodeMarks>(&step);
    return marks != nullptr && marks->drops_first;
  };
  const bool first_differs = std::any_of(plan_.steps.begin(), plan_.steps.end(), drops_first);
  PatternMemory memory;
  size_t made = 0;
  for (TokenTable::Token& token : tokens_.tokens()) {
    std::string first;
    if (first_differs) first = decoded(token, true, limit, memory);
    std::string text = decoded(token, false, limit, memory);
    made += text.size() + first.size();
    require(made <= limit, "{}.decoder: makes the tokens' texts too long", where);
    if (first_differs && first != text) first_.emplace(token.id, std::move(first));
    token.text = std::move(text);
  }
}

std::string TokenDecoder::decoded(const TokenTable::Token& token, bool first, size_t limit,
                                  PatternMemory& memory) const {
  std::string text = token.text;
  for (const Step& step : plan_.steps) {
    if (const auto* replace = std::get_if<ReplaceMatches>(&step)) {
      text = replace_matches(text, *replace, limit, memory);
    } else if (std::get_if<DecodeByteTokens>(&step) != nullptr) {
      if (const auto byte = byte_of(text)) text = *byte;
    } else if (std::get_if<DecodeByteLevel>(&step) != nullptr) {
      if (!token.added) text = characters_to_bytes(text).value_or(text);
    } else if (const auto* marks = std::get_if<DecodeMarks>(&step)) {
      text = without_marks(text, marks->mark, first && marks->drops_first ? "" : " ");
    } else {
      text = stripped(text, std::get<StripEnds>(step));
    }
  }
  return text;
}

std::string_view TokenDecoder::first_bytes(const TokenTable::Token& token) const {
  const auto found = first_.find(token.id);
  return std::string_view(found == first_.end() ? token.text : found->second);
}

class TokenDecoder::Stream : public TextStream {
 public:
  Stream(const TokenDecoder& decoder, const DecodeOptions& options)
      : decoder_(decoder), options_(options), may_strip_(decoder.plan_.strip.start) {}

  void push(int32_t id, std::string& out) override {
    const TokenTable::Token* token = decoder_.tokens_.find(id);
    if (token == nullptr || (token->special && !options_.keep_special)) return;
    if (is_first_) {
      add(decoder_.first_bytes(*token), out);
    } else {
      if (!decoder_.plan_.separator.empty()) add(decoder_.plan_.separator, out);
      add(token->text, out);
    }
    is_first_ = false;
  }

  void finish(std::string& out) override {
    hold(begin_, out);
    const StripEnds& strip = decoder_.plan_.strip;
    out += stripped(end_, {strip.content, 0, strip.stop});
    begin_.clear();
    end_.clear();
    is_first_ = true;
    may_strip_ = strip.start;
  }

 private:
  // What may be stripped from the front waits until it is whole.
  void add(std::string_view bytes, std::string& out) {
    if (may_strip_ == 0) return hold(bytes, out);
    begin_ += bytes;
    const std::string& content = decoder_.plan_.strip.content;
    while (may_strip_ > 0 && begin_.starts_with(content)) {
      begin_.erase(0, content.size());
      --may_strip_;
    }
    if (may_strip_ > 0 && content.starts_with(begin_)) return;
    may_strip_ = 0;
    hold(begin_, out);
    begin_.clear();
  }

  // As many bytes as may be stripped from the back wait for the end.
  void hold(std::string_view bytes, std::string& out) {
    const StripEnds& strip = decoder_.plan_.strip;
    if (strip.stop == 0) {
      out += bytes;
      return;
    }
    end_ += bytes;
    const size_t held = static_cast<size_t>(strip.stop) * strip.content.size();
    if (end_.size() <= held) return;
    out.append(end_, 0, end_.size() - held);
    end_.erase(0, end_.size() - held);
  }

  const TokenDecoder& decoder_;
  DecodeOptions options_;
  bool is_first_ = true;
  int64_t may_strip_;
  std::string begin_;
  std::string end_;
};

std::unique_ptr<TextStream> TokenDecoder::stream(const DecodeOptions& options) const {
  return std::make_unique<Stream>(*this, options);
}

}  // namespace dcformer
