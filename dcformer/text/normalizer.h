#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dcformer/text/pattern.h"

namespace dcformer {

/// Unicode normalisation forms.
enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// Puts a text in front of every text that is not empty.
struct PrependText {
  std::string text;
};

/// Replaces every match of a pattern by a text, which is taken as it is.
struct ReplaceMatches {
  Pattern pattern;
  std::string content;
};

/// Rewrites texts before they are cut into pieces: the steps of tokenizer.json's `normalizer`, one
/// after the other. Bytes that are not UTF-8 stay as they are.
class Normalizer {
 public:
  using Step = std::variant<UnicodeForm, PrependText, ReplaceMatches>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  size_t size() const { return steps_.size(); }

  /// The text rewritten, in `buffer`, or `text` itself where there is no step. Throws Error when a
  /// step makes more than 64 bytes a byte of the first text and 2^20 bytes besides.
  std::string_view apply(std::string_view text, std::string& buffer, PatternMemory& memory) const;

 private:
  std::vector<Step> steps_;
};

/// `text` with every match of the pattern replaced. Throws Error when the result is longer than
/// `limit`.
std::string replace_matches(std::string_view text, const ReplaceMatches& replace, size_t limit,
                            PatternMemory& memory);

}  // namespace dcformer
