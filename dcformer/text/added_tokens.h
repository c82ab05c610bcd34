#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dcformer {

/// A token that is found in the text before the text is cut and encoded: an entry of
/// tokenizer.json's `added_tokens`.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  /// Control tokens (ends of documents and of turns); others are ordinary text with an id of its
  /// own.
  bool special = false;
  /// The white space before, or behind, belongs to it.
  bool lstrip = false;
  bool rstrip = false;
  /// Found only where no letter, digit or mark stands beside it.
  bool single_word = false;
  /// Found in the text as the normalizer rewrites it, rewritten itself.
  bool normalized = false;
};

/// Finds added tokens in a text: at each place the longest one, from left to right.
class AddedTokenFinder {
 public:
  /// `content` of each token is what is looked for; an empty one is never found. Throws Error for
  /// one of more than 1024 bytes, naming it.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens = {});

  /// A part of the text: an added token, or (null) text without any. Never empty.
  struct Part {
    std::string_view text;
    const AddedToken* token;
  };

  /// Cuts a text; `parts` is overwritten. Special tokens count as text where `special` is false.
  /// Bytes next to a token that it strips are in its part.
  void find(std::string_view text, bool special, std::vector<Part>& parts) const;

  bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    int32_t token = -1;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    char byte = 0;
  };

  int32_t child(int32_t node, char byte) const;
  void insert(const std::string& content, int32_t token);
  size_t next_start(std::string_view text, size_t from) const;
  const AddedToken* longest_at(std::string_view text, size_t begin) const;

  std::vector<AddedToken> tokens_;
  /// A trie of bytes; node 0 is the root.
  std::vector<Node> nodes_;
  /// The root's children by byte, and the only one where there is but one.
  std::array<int32_t, 256> roots_;
  int only_start_ = -1;
};

}  // namespace dcformer
