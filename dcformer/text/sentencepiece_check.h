#pragma once

#include <string>
#include <string_view>

namespace dcformer {

/// Throws Error, naming `where`, for the bytes of a SentencePiece model that the library must not
/// see, because it trusts them (version 0.1.97): a table of normalisation rules (a trie whose
/// offsets it follows without looking), more than 64 user-defined pieces that begin each other (it
/// reads beyond an array of 64), pieces with a NUL (they break its tries) or of thousands of bytes
/// (it recurses over them). Also for more than 2^20 pieces, and models other than byte-pair
/// encoding.
void check_sentencepiece_model(std::string_view model, const std::string& where);

}  // namespace dcformer
