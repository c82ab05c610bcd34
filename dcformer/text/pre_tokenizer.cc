#include "dcformer/text/pre_tokenizer.h"

#include <algorithm>

#include "dcformer/base/check.h"
#include "dcformer/text/byte_level.h"
#include "dcformer/text/characters.h"

namespace dcformer {
namespace {

using Segment = PreTokenizerMemory::StepBuffers::Segment;

constexpr size_t kGrowth = 64;
constexpr size_t kGrowthBesides = size_t{1} << 20;

// Calls f(begin, end, is_match) for all of a text: matches, and what lies between and is not empty.
template <typename F>
void for_each_segment(const Pattern& pattern, std::string_view text, PatternMemory& memory, F&& f) {
  PatternMatches matches(pattern, text, memory);
  size_t done = 0;
  for (size_t begin = 0, end = 0; matches.next(begin, end); done = end) {
    if (begin > done) f(done, begin, false);
    f(begin, end, true);
  }
  if (done < text.size()) f(done, text.size(), false);
}

// The segments in the direction of reading, each joined to the group before it where `joins` says
// so of the two.
template <typename Joins>
void group(std::vector<Segment>& segments, Joins&& joins) {
  size_t n = 0;
  bool previous = false;
  for (const Segment segment : segments) {
    if (n > 0 && joins(previous, segment.is_match)) {
      segments[n - 1].begin = std::min(segments[n - 1].begin, segment.begin);
      segments[n - 1].end = std::max(segments[n - 1].end, segment.end);
    } else {
      segments[n++] = segment;
    }
    previous = segment.is_match;
  }
  segments.resize(n);
}

void group(std::vector<Segment>& segments, SplitBehavior behavior) {
  const auto first_match = [](bool previous, bool now) { return now && !previous; };
  switch (behavior) {
    case SplitBehavior::contiguous:
      group(segments, [](bool previous, bool now) { return previous == now; });
      break;
    case SplitBehavior::merged_with_previous:
      group(segments, first_match);
      break;
    case SplitBehavior::merged_with_next:
      std::reverse(segments.begin(), segments.end());
      group(segments, first_match);
      std::reverse(segments.begin(), segments.end());
      break;
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
      break;
  }
}

}  // namespace

struct PreTokenizer::Run {
  PreTokenizerMemory& memory;
  PieceSink& sink;
  // Whether the whole text is well-formed: then its pieces are.
  bool is_valid;
  size_t may_grow;

  void count_growth(size_t before, size_t after) {
    if (after <= before) return;
    require(after - before <= may_grow, "the pre-tokenizer makes a text too long");
    may_grow -= after - before;
  }
};

void PreTokenizer::cut(std::string_view text, bool at_beginning, PreTokenizerMemory& memory,
                       PieceSink& sink) const {
  memory.steps.resize(std::max(memory.steps.size(), steps_.size()));
  const bool is_valid = steps_.empty() || valid_length(text) == text.size();
  Run run{memory, sink, is_valid, kGrowth * text.size() + kGrowthBesides};
  pass(0, {text, at_beginning}, run);
}

void PreTokenizer::pass(size_t step, Piece piece, Run& run) const {
  if (piece.text.empty()) return;
  if (step == steps_.size()) {
    run.sink.piece(piece.text);
  } else {
    std::visit([&](const auto& kind) { apply(step, kind, piece, run); }, steps_[step]);
  }
}

void PreTokenizer::apply(size_t step, const SplitAt& split, Piece piece, Run& run) const {
  if (run.is_valid) return split_valid(step, split, piece, run);
  while (!piece.text.empty()) {
    const size_t valid = valid_length(piece.text);
    split_valid(step, split, {piece.text.substr(0, valid), piece.at_beginning}, run);
    piece.at_beginning &= valid == 0;
    piece.text.remove_prefix(valid);
    if (piece.text.empty()) return;
    const size_t invalid = invalid_length(piece.text);
    pass(step + 1, {piece.text.substr(0, invalid), piece.at_beginning}, run);
    piece.at_beginning = false;
    piece.text.remove_prefix(invalid);
  }
}

void PreTokenizer::split_valid(size_t step, const SplitAt& split, Piece piece, Run& run) const {
  const bool removes = split.behavior == SplitBehavior::removed;
  if (!removes && split.behavior != SplitBehavior::isolated)
    return split_grouped(step, split, piece, run);
  for_each_segment(
      split.pattern, piece.text, run.memory.patterns, [&](size_t begin, size_t end, bool is_match) {
        if (removes && is_match != split.invert) return;
        pass(step + 1, {piece.text.substr(begin, end - begin), piece.at_beginning && begin == 0},
             run);
      });
}

void PreTokenizer::split_grouped(size_t step, const SplitAt& split, Piece piece, Run& run) const {
  std::vector<Segment>& segments = run.memory.steps[step].segments;
  segments.clear();
  for_each_segment(split.pattern, piece.text, run.memory.patterns,
                   [&](size_t begin, size_t end, bool is_match) {
                     segments.push_back({begin, end, is_match != split.invert});
                   });
  group(segments, split.behavior);
  for (const Segment& s : segments)
    pass(step + 1,
         {piece.text.substr(s.begin, s.end - s.begin), piece.at_beginning && s.begin == 0}, run);
}

void PreTokenizer::apply(size_t step, PrependBlank, Piece piece, Run& run) const {
  if (piece.text.starts_with(' ')) return pass(step + 1, piece, run);
  std::string& text = run.memory.steps[step].text;
  run.count_growth(0, 1);
  text.assign(1, ' ').append(piece.text);
  pass(step + 1, {text, piece.at_beginning}, run);
}

void PreTokenizer::apply(size_t step, const MarkBlanks& mark, Piece piece, Run& run) const {
  std::string& text = run.memory.steps[step].text;
  text.clear();
  const bool begins_marked = piece.text.starts_with(' ') || piece.text.starts_with(mark.mark);
  const bool prepends = mark.prepend == MarkBlanks::Prepend::always ||
                        (mark.prepend == MarkBlanks::Prepend::first && piece.at_beginning);
  if (prepends && !begins_marked) text = mark.mark;
  for (const char c : piece.text) {
    if (c == ' ') {
      text += mark.mark;
    } else {
      text += c;
    }
  }
  run.count_growth(piece.text.size(), text.size());
  pass(step + 1, {text, piece.at_beginning}, run);
}

void PreTokenizer::apply(size_t step, MapBytes map, Piece piece, Run& run) const {
  std::string& text = run.memory.steps[step].text;
  // Cutting leaves no part of a character, and adds none: all can be turned back.
  text = map.back ? characters_to_bytes(piece.text).value() : bytes_to_characters(piece.text);
  run.count_growth(piece.text.size(), text.size());
  pass(step + 1, {text, piece.at_beginning}, run);
}

}  // namespace dcformer
