#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dcformer {

/// What stands at the front of some bytes.
enum class Utf8Front { character, invalid, cut_short };

struct Utf8Step {
  Utf8Front front;
  /// Bytes of the character, or of the sequence that is invalid or cut short (at least 1).
  size_t length;
};

/// Looks at the first character of `bytes` (not empty) by the Unicode standard's table of
/// well-formed sequences (no overlong forms, no surrogates, nothing above U+10FFFF). `cut_short`:
/// all bytes there are a proper beginning of a character. Invalid: one byte, or the proper
/// beginning before the one that fails.
Utf8Step utf8_front(std::string_view bytes);

/// At most `limit` bytes from the front, cut between characters, and "…" where anything is left
/// out: for quoting in messages.
std::string shorten_utf8(std::string_view text, size_t limit);

/// The place of the first byte that is not part of a character, or npos.
size_t find_invalid_utf8(std::string_view bytes);

}  // namespace dcformer
