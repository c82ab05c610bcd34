#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dcformer {

/// Texts by id, in memory that depends on their number and lengths, not on the ids.
class TokenTable {
 public:
  struct Token {
    int32_t id = 0;
    std::string text;
    bool special = false;
    /// An added token: its text is never written in the characters of byte_level.h.
    bool added = false;
  };

  /// Throws Error, naming `where`, when two tokens have one id.
  TokenTable(std::vector<Token> tokens, const std::string& where);
  TokenTable() = default;

  /// The token of an id, or null.
  const Token* find(int32_t id) const;
  /// The largest id and one.
  int64_t vocab_size() const;

  std::vector<Token>& tokens() { return tokens_; }

 private:
  /// In the order of the ids.
  std::vector<Token> tokens_;
};

}  // namespace dcformer
