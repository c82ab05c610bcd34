#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dcformer {

/// The code point of one well-formed UTF-8 character.
char32_t code_point(std::string_view character);

/// Unicode's White_Space property.
bool is_white_space(char32_t c);

/// Letters (and symbols that are alphabetic), marks, digits, letter numbers, connecting punctuation
/// and joiners: `\w` of Unicode's regular expressions (technical standard 18).
bool is_word_character(char32_t c);

/// The bytes of white space at the front, or at the back, of a text. Bytes that form no character
/// end it.
size_t leading_white_space(std::string_view text);
size_t trailing_white_space(std::string_view text);

/// Whether the first, or the last, character of a text (which may be empty) is a word's.
bool starts_with_word(std::string_view text);
bool ends_with_word(std::string_view text);

/// The length of the longest front of `text` that is well-formed UTF-8.
size_t valid_length(std::string_view text);
/// The bytes at the front of `text` (not empty) that belong to no character; 0 where one begins.
size_t invalid_length(std::string_view text);

/// A text in quotes, cut after some 40 bytes: for messages.
std::string in_quotes(std::string_view text);

}  // namespace dcformer
