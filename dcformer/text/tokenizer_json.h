#pragma once

#include <string>
#include <string_view>

#include "dcformer/io/json_object.h"
#include "dcformer/text/tokenizer_parts.h"

namespace dcformer {

/// Parses a tokenizer.json of the Hugging Face library tokenizers (its form is that library's
/// serialisation), whose model is byte-pair encoding. `truncation` and `padding` are not looked at.
/// Throws Error, naming `where` and the key, for what is broken and for kinds of steps that are
/// not supported.
TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& where);

// The steps of its parts; each may be null, and has at most 64 steps.

/// `normalizer`: NFC, NFD, NFKC, NFKD, Prepend, Replace and Sequence.
Normalizer parse_normalizer(const nlohmann::json& json, const std::string& where);

/// `pre_tokenizer`: ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit
/// and Sequence. `byte_level`: whether the vocabulary is written in byte_level.h's characters.
PreTokenizer parse_pre_tokenizer(const nlohmann::json& json, const std::string& where,
                                 bool& byte_level);

/// `decoder`: ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and Sequence. Without any,
/// tokens are joined by blanks, as the library does, unless the vocabulary is byte-level.
TokenDecoder::Plan parse_decoder(const nlohmann::json& json, const std::string& where,
                                 bool byte_level);

}  // namespace dcformer
