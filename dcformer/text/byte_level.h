#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dcformer {

/// The bytes as the characters that byte-level vocabularies write for them (`bytes_to_unicode` of
/// the GPT-2 code): printable Latin-1 characters stand for themselves, the 68 other bytes for
/// U+0100 … U+0143 in ascending order.
std::string bytes_to_characters(std::string_view bytes);

/// The bytes that characters stand for; nothing where a character stands for none.
std::optional<std::string> characters_to_bytes(std::string_view characters);

}  // namespace dcformer
