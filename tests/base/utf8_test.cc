#include "dcformer/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace dcformer {
namespace {

struct Case {
  std::string_view bytes;
  Utf8Front front;
  size_t length;
};

// Ends of the ranges of table 3-7 of the Unicode standard, and the first byte beyond each.
const Case kCases[] = {
    {std::string_view("\0", 1), Utf8Front::character, 1},
    {"\x7F", Utf8Front::character, 1},
    {"A\xFF", Utf8Front::character, 1},
    {"\xC2\x80", Utf8Front::character, 2},
    {"\xDF\xBF", Utf8Front::character, 2},
    {"\xE0\xA0\x80", Utf8Front::character, 3},
    {"\xEC\xBF\xBF", Utf8Front::character, 3},
    {"\xED\x9F\xBF", Utf8Front::character, 3},
    {"\xEE\x80\x80", Utf8Front::character, 3},
    {"\xEF\xBF\xBF", Utf8Front::character, 3},
    {"\xF0\x90\x80\x80", Utf8Front::character, 4},
    {"\xF3\xBF\xBF\xBF", Utf8Front::character, 4},
    {"\xF4\x8F\xBF\xBF", Utf8Front::character, 4},
    // Never first.
    {"\x80", Utf8Front::invalid, 1},
    {"\xBF\x80", Utf8Front::invalid, 1},
    {"\xF5\x80\x80\x80", Utf8Front::invalid, 1},
    {"\xFE", Utf8Front::invalid, 1},
    {"\xFF", Utf8Front::invalid, 1},
    // Overlong.
    {"\xC0\x80", Utf8Front::invalid, 1},
    {"\xC1\xBF", Utf8Front::invalid, 1},
    {"\xE0\x9F\xBF", Utf8Front::invalid, 1},
    {"\xF0\x8F\xBF\xBF", Utf8Front::invalid, 1},
    // Surrogates, and above U+10FFFF.
    {"\xED\xA0\x80", Utf8Front::invalid, 1},
    {"\xED\xBF\xBF", Utf8Front::invalid, 1},
    {"\xF4\x90\x80\x80", Utf8Front::invalid, 1},
    // A character that another byte breaks off.
    {"\xC3(", Utf8Front::invalid, 1},
    {"\xE2\x96(", Utf8Front::invalid, 2},
    {"\xF0\x9F\x98(", Utf8Front::invalid, 3},
    {"\xF0\x9F\xC3\xA9", Utf8Front::invalid, 2},
    {"\xC3\xC0", Utf8Front::invalid, 1},
    // Beginnings.
    {"\xC3", Utf8Front::cut_short, 1},
    {"\xE2\x96", Utf8Front::cut_short, 2},
    {"\xE0\xA0", Utf8Front::cut_short, 2},
    {"\xF0", Utf8Front::cut_short, 1},
    {"\xF0\x9F\x98", Utf8Front::cut_short, 3},
    {"\xF4\x8F\xBF", Utf8Front::cut_short, 3},
};

TEST(Utf8, LooksAtTheFront) {
  for (const Case& c : kCases) {
    const Utf8Step step = utf8_front(c.bytes);
    const size_t index = static_cast<size_t>(&c - kCases);
    EXPECT_EQ(step.front, c.front) << "case " << index;
    EXPECT_EQ(step.length, c.length) << "case " << index;
  }
}

// An independent rule: a code point's encoding, written from its definition.
std::string encoding_of(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  const auto next = [&](int shift, uint32_t c) { return byte(0x80 | ((c >> shift) & 0x3F)); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | (code >> 6)), next(0, code)};
  if (code < 0x10000) return {byte(0xE0 | (code >> 12)), next(6, code), next(0, code)};
  return {byte(0xF0 | (code >> 18)), next(12, code), next(6, code), next(0, code)};
}

TEST(Utf8, TakesEveryCodePointButSurrogates) {
  for (uint32_t code = 0; code < 0x120000; ++code) {
    const std::string bytes = encoding_of(code);
    const bool valid = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    const Utf8Step step = utf8_front(bytes);
    ASSERT_EQ(step.front == Utf8Front::character, valid) << code;
    ASSERT_TRUE(!valid || step.length == bytes.size()) << code;
    ASSERT_EQ(find_invalid_utf8(bytes), valid ? std::string::npos : 0) << code;
  }
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8(""), std::string::npos);
  EXPECT_EQ(find_invalid_utf8("plain"), std::string::npos);
  EXPECT_EQ(find_invalid_utf8("caf\xC3\xA9 \xF0\x9F\x98\x80"), std::string::npos);
  EXPECT_EQ(find_invalid_utf8("\xFF"), 0u);
  EXPECT_EQ(find_invalid_utf8("abc\x80"), 3u);
  EXPECT_EQ(find_invalid_utf8("caf\xC3\xA9\xC0\xAF"), 5u);
  // Where the text ends within a character, the character's own place.
  EXPECT_EQ(find_invalid_utf8("ab\xE2\x96"), 2u);
}

TEST(Utf8, ShortensBetweenCharacters) {
  EXPECT_EQ(shorten_utf8("short", 5), "short");
  EXPECT_EQ(shorten_utf8("longer", 5), "longe…");
  EXPECT_EQ(shorten_utf8("caf\xC3\xA9s", 4), "caf…");
  EXPECT_EQ(shorten_utf8("caf\xC3\xA9s", 5), "caf\xC3\xA9…");
  EXPECT_EQ(shorten_utf8("\x80\x80\x80", 1), "…");
}

}  // namespace
}  // namespace dcformer
