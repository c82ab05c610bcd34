#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dcformer/text/pattern.h"

namespace dcformer {

/// What becomes of the matches of a pattern that cuts a text, and of what lies between.
enum class SplitBehavior {
  removed,               // matches are left out
  isolated,              // every match is a piece
  merged_with_previous,  // a match belongs to the piece before it
  merged_with_next,      // a match belongs to the piece behind it
  contiguous,            // neighbouring matches are one piece
};

/// Cuts at the matches of a pattern; with `invert` at what is none.
struct SplitAt {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
};

/// Puts a blank before pieces that begin with none.
struct PrependBlank {};

/// Writes `mark` for blanks, and puts one before pieces that begin with none: never, only at the
/// very beginning of the text, or always.
struct MarkBlanks {
  enum class Prepend { never, first, always };
  std::string mark;
  Prepend prepend = Prepend::always;
};

/// Writes bytes as the characters of byte-level vocabularies, or turns them back.
struct MapBytes {
  bool back = false;
};

/// Takes the pieces of a text, one by one.
class PieceSink {
 public:
  virtual void piece(std::string_view bytes) = 0;

 protected:
  ~PieceSink() = default;
};

/// What cutting a text needs to work in; of one thread at a time.
struct PreTokenizerMemory {
  PatternMemory patterns;
  /// For each step, the pieces that it rewrites, and the segments that it groups.
  struct StepBuffers {
    std::string text;
    struct Segment {
      size_t begin, end;
      bool is_match;
    };
    std::vector<Segment> segments;
  };
  std::vector<StepBuffers> steps;
};

/// Cuts texts into the pieces that are encoded on their own: the steps of tokenizer.json's
/// `pre_tokenizer`, each applied to every piece of the one before. Bytes that are not UTF-8 match
/// nothing: each run of them is a piece of its own for steps that cut.
class PreTokenizer {
 public:
  using Step = std::variant<SplitAt, PrependBlank, MarkBlanks, MapBytes>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  size_t size() const { return steps_.size(); }

  /// Gives the pieces, none of them empty, to `sink`. `at_beginning`: the text begins what was
  /// given to encode. Throws Error for a pattern that takes too many steps, or when steps add more
  /// than 64 bytes a byte and 2^20 bytes besides.
  void cut(std::string_view text, bool at_beginning, PreTokenizerMemory& memory,
           PieceSink& sink) const;

 private:
  struct Run;
  struct Piece {
    std::string_view text;
    bool at_beginning;
  };

  void pass(size_t step, Piece piece, Run& run) const;
  void apply(size_t step, const SplitAt& split, Piece piece, Run& run) const;
  void apply(size_t step, PrependBlank, Piece piece, Run& run) const;
  void apply(size_t step, const MarkBlanks& mark, Piece piece, Run& run) const;
  void apply(size_t step, MapBytes map, Piece piece, Run& run) const;
  void split_valid(size_t step, const SplitAt& split, Piece piece, Run& run) const;
  void split_grouped(size_t step, const SplitAt& split, Piece piece, Run& run) const;

  std::vector<Step> steps_;
};

}  // namespace dcformer
