#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace dcformer {

/// A regular expression or a literal text to find, compiled by PCRE2 (UTF-8, Unicode properties,
/// machine code). Regular expressions are those of tokenizer.json, which the reference library
/// hands to Oniguruma: `\s` is Unicode's White_Space, `\w` letters, marks, digits and connecting
/// punctuation, `\h` a hexadecimal digit, `^` and `$` match at line breaks.
class Pattern {
 public:
  enum class Kind { regex, literal };

  /// Throws Error, naming `where` and the place in the pattern, for a pattern that does not
  /// compile, is empty or longer than 32768 bytes, or uses sets within classes (`[a[bc]]`, `&&`).
  Pattern(std::string_view pattern, Kind kind, std::string where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

 private:
  friend class PatternMatches;
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

/// What searches need to work in; of one thread at a time, for any number of patterns.
class PatternMemory {
 public:
  PatternMemory();
  ~PatternMemory();

 private:
  friend class PatternMatches;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

/// The matches of a pattern in a text, from left to right, none overlapping another. An empty match
/// does not follow directly behind another match.
class PatternMatches {
 public:
  /// `text` must be well-formed UTF-8, and live as long as this.
  PatternMatches(const Pattern& pattern, std::string_view text, PatternMemory& memory);

  /// The next match, text[begin, end); false where there is none. Throws Error, naming the pattern,
  /// when a search takes more than 2^20 + 4·(bytes of text) steps, or too much memory.
  bool next(size_t& begin, size_t& end);

 private:
  int search();
  [[noreturn]] void fail_search(int code) const;

  const Pattern::Compiled& pattern_;
  std::string_view text_;
  PatternMemory::Buffers& buffers_;
  size_t from_ = 0;
  size_t last_end_ = std::string_view::npos;
};

}  // namespace dcformer
