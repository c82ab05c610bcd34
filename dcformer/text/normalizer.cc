#include "dcformer/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "dcformer/base/check.h"
#include "dcformer/text/characters.h"

namespace dcformer {
namespace {

constexpr size_t kGrowth = 64;
constexpr size_t kGrowthBesides = size_t{1} << 20;

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

utf8proc_option_t options_of(UnicodeForm form) {
  constexpr auto kStable = static_cast<int>(UTF8PROC_STABLE);
  const auto with = [](int options) { return static_cast<utf8proc_option_t>(options); };
  switch (form) {
    case UnicodeForm::nfc:
      return with(kStable | UTF8PROC_COMPOSE);
    case UnicodeForm::nfd:
      return with(kStable | UTF8PROC_DECOMPOSE);
    case UnicodeForm::nfkc:
      return with(kStable | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case UnicodeForm::nfkd:
      return with(kStable | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  std::abort();
}

// Adds the normal form of well-formed UTF-8.
void add_normal_form(std::string_view text, UnicodeForm form, std::string& out) {
  if (text.empty()) return;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, std::free);
  require(n >= 0, "normalising a text of {} bytes: {}", text.size(), utf8proc_errmsg(n));
  out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(n));
}

// ASCII characters are their own normal form, compose with none before them, and can only compose
// with what follows: what matters is each run of other characters with the one before it.
void add_normal_runs(std::string_view text, UnicodeForm form, std::string& out) {
  size_t i = 0;
  while (i < text.size()) {
    size_t ascii = i;
    while (ascii < text.size() && is_ascii(text[ascii])) ++ascii;
    const bool any_follows = ascii < text.size();
    const size_t plain = any_follows && ascii > i ? ascii - 1 : ascii;
    out.append(text.substr(i, plain - i));
    size_t end = ascii;
    while (end < text.size() && !is_ascii(text[end])) ++end;
    add_normal_form(text.substr(plain, end - plain), form, out);
    i = end;
  }
}

std::string normal_form(std::string_view text, UnicodeForm form) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_length(text);
    add_normal_runs(text.substr(0, valid), form, out);
    text.remove_prefix(valid);
    const size_t invalid = text.empty() ? 0 : invalid_length(text);
    out.append(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
  return out;
}

}  // namespace

std::string replace_matches(std::string_view text, const ReplaceMatches& replace, size_t limit,
                            PatternMemory& memory) {
  std::string out;
  out.reserve(text.size());
  const auto check = [&] {
    require(out.size() <= limit, "replacing by '{}' makes a text too long: more than {} bytes",
            replace.content.substr(0, 40), limit);
  };
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, valid_length(text));
    PatternMatches matches(replace.pattern, valid, memory);
    size_t copied = 0;
    for (size_t begin = 0, end = 0; matches.next(begin, end); copied = end) {
      out.append(valid.substr(copied, begin - copied)).append(replace.content);
      check();
    }
    out.append(valid.substr(copied));
    text.remove_prefix(valid.size());
    const size_t invalid = text.empty() ? 0 : invalid_length(text);
    out.append(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
  check();
  return out;
}

std::string_view Normalizer::apply(std::string_view text, std::string& buffer,
                                   PatternMemory& memory) const {
  if (steps_.empty() || text.empty()) return text;
  const size_t limit = kGrowth * text.size() + kGrowthBesides;
  bool in_buffer = false;
  for (const Step& step : steps_) {
    const std::string_view now = in_buffer ? std::string_view(buffer) : text;
    if (const auto* form = std::get_if<UnicodeForm>(&step)) {
      if (std::all_of(now.begin(), now.end(), is_ascii)) continue;
      buffer = normal_form(now, *form);
    } else if (const auto* prepend = std::get_if<PrependText>(&step)) {
      if (now.empty()) continue;
      buffer = prepend->text + std::string(now);
    } else {
      buffer = replace_matches(now, std::get<ReplaceMatches>(step), limit, memory);
    }
    in_buffer = true;
    require(buffer.size() <= limit, "the normalizer makes a text of {} bytes too long",
            text.size());
  }
  return in_buffer ? std::string_view(buffer) : text;
}

}  // namespace dcformer
