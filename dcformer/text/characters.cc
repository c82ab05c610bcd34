#include "dcformer/text/characters.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cstdint>
#include <cstring>

#include "dcformer/base/utf8.h"

namespace dcformer {
namespace {

// The last character of a text, or nothing where its last bytes form none.
std::string_view last_character(std::string_view text) {
  for (size_t n = 1; n <= 4 && n <= text.size(); ++n) {
    const std::string_view back = text.substr(text.size() - n);
    const Utf8Step step = utf8_front(back);
    if (step.front == Utf8Front::character && step.length == n) return back;
  }
  return {};
}

std::string_view first_character(std::string_view text) {
  if (text.empty()) return {};
  const Utf8Step step = utf8_front(text.substr(0, 4));
  return step.front == Utf8Front::character ? text.substr(0, step.length) : std::string_view();
}

bool is_space(std::string_view character) {
  return !character.empty() && is_white_space(code_point(character));
}

bool is_word(std::string_view character) {
  return !character.empty() && is_word_character(code_point(character));
}

// The bytes of ASCII at the front, eight at a time.
size_t ascii_length(std::string_view text) {
  size_t i = 0;
  for (uint64_t word = 0; i + 8 <= text.size(); i += 8) {
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

char32_t code_point(std::string_view character) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(character[i]));
  };
  switch (character.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
  }
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  const bool is_joiner = c == 0x200C || c == 0x200D;
  const bool is_letter_symbol = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  if (is_joiner || is_letter_symbol) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

size_t leading_white_space(std::string_view text) {
  size_t n = 0;
  for (;;) {
    const std::string_view character = first_character(text.substr(n));
    if (!is_space(character)) return n;
    n += character.size();
  }
}

size_t trailing_white_space(std::string_view text) {
  size_t n = 0;
  for (;;) {
    const std::string_view character = last_character(text.substr(0, text.size() - n));
    if (!is_space(character)) return n;
    n += character.size();
  }
}

bool starts_with_word(std::string_view text) { return is_word(first_character(text)); }
bool ends_with_word(std::string_view text) { return is_word(last_character(text)); }

size_t valid_length(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    n += ascii_length(text.substr(n));
    if (n == text.size()) break;
    const Utf8Step step = utf8_front(text.substr(n, 4));
    if (step.front != Utf8Front::character) break;
    n += step.length;
  }
  return n;
}

size_t invalid_length(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    const Utf8Step step = utf8_front(text.substr(n, 4));
    if (step.front == Utf8Front::character) break;
    n += step.length;
  }
  return n;
}

std::string in_quotes(std::string_view text) { return fmt::format("'{}'", shorten_utf8(text, 40)); }

}  // namespace dcformer
