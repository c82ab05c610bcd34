#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "dcformer/text/normalizer.h"
#include "dcformer/text/token_table.h"
#include "dcformer/text/tokenizer.h"

namespace dcformer {

/// `<0x41>` is the byte 0x41.
struct DecodeByteTokens {};
/// The characters of byte_level.h are bytes; a token with another character stays as it is, and so
/// do added tokens.
struct DecodeByteLevel {};
/// `mark` is a blank; where `drops_first`, the marks of the first token are dropped.
struct DecodeMarks {
  std::string mark;
  bool drops_first = false;
};
/// Takes up to `start` times the character `content` from the front, `stop` times from the back.
struct StripEnds {
  std::string content;
  int64_t start = 0;
  int64_t stop = 0;
};

/// Turns tokens into text: the steps of tokenizer.json's `decoder`. Most belong to one token alone,
/// and are done once for all tokens; what depends on the place of a token is left to streams().
class TokenDecoder {
 public:
  using Step =
      std::variant<ReplaceMatches, DecodeByteTokens, DecodeByteLevel, DecodeMarks, StripEnds>;

  /// What is done to each token; then, to the text as a whole, `strip`; tokens are joined by
  /// `separator`.
  struct Plan {
    std::vector<Step> steps;
    StripEnds strip;
    std::string separator;
  };

  /// Throws Error, naming `where`, when the steps make the tokens' texts too long.
  TokenDecoder(TokenTable tokens, Plan plan, const std::string& where);
  TokenDecoder() = default;

  /// The tokens, with the bytes that they stand for within a text.
  const TokenTable& tokens() const { return tokens_; }
  /// A new text; it must not outlive this.
  std::unique_ptr<TextStream> stream(const DecodeOptions& options) const;

 private:
  class Stream;
  std::string_view first_bytes(const TokenTable::Token& token) const;
  std::string decoded(const TokenTable::Token& token, bool first, size_t limit,
                      PatternMemory& memory) const;

  TokenTable tokens_;
  Plan plan_;
  /// The bytes of ids that are others at the beginning of a text.
  std::unordered_map<int32_t, std::string> first_;
};

}  // namespace dcformer
