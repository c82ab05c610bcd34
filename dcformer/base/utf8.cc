#include "dcformer/base/utf8.h"

namespace dcformer {
namespace {

struct Range {
  unsigned char low, high;
};

// The second byte's range depends on the first (Unicode standard, table 3-7).
Range second_byte(unsigned char first) {
  switch (first) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

size_t length_by_first(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

}  // namespace

Utf8Step utf8_front(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  const size_t length = length_by_first(first);
  if (length == 0) return {Utf8Front::invalid, 1};
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8Front::cut_short, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const Range range = i == 1 ? second_byte(first) : Range{0x80, 0xBF};
    if (byte < range.low || byte > range.high) return {Utf8Front::invalid, i};
  }
  return {Utf8Front::character, length};
}

std::string shorten_utf8(std::string_view text, size_t limit) {
  if (text.size() <= limit) return std::string(text);
  size_t n = limit;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return std::string(text.substr(0, n)) + "…";
}

size_t find_invalid_utf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    if (static_cast<unsigned char>(bytes[i]) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Step step = utf8_front(bytes.substr(i, 4));
    if (step.front != Utf8Front::character) return i;
    i += step.length;
  }
  return std::string_view::npos;
}

}  // namespace dcformer
