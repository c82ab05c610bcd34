#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dcformer/text/added_tokens.h"
#include "dcformer/text/bpe_model.h"
#include "dcformer/text/normalizer.h"
#include "dcformer/text/pre_tokenizer.h"
#include "dcformer/text/token_decoder.h"

namespace dcformer {

/// What a HuggingFaceTokenizer is put together from.
struct TokenizerParts {
  /// The file, for messages.
  std::string where;
  BpeParts bpe;
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder::Plan decoder;
  /// The ids that the post-processor puts around a text.
  std::vector<int32_t> prefix, suffix;
  /// -1: none.
  int32_t end_of_document = -1;

  /// The id of a token by its text, among the added ones or the vocabulary.
  std::optional<int32_t> id_of(const std::string& text) const {
    for (const AddedToken& token : added_tokens)
      if (token.content == text) return token.id;
    for (const VocabEntry& entry : bpe.vocab)
      if (entry.text == text) return entry.id;
    return std::nullopt;
  }
};

}  // namespace dcformer
