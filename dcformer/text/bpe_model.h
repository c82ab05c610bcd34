#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dcformer/text/merge_table.h"
#include "dcformer/text/piece_cache.h"

namespace dcformer {

/// A token of a vocabulary as the file writes it.
struct VocabEntry {
  std::string text;
  int32_t id = 0;
};

/// What a byte-pair encoding is made of: tokenizer.json's `model`.
struct BpeParts {
  std::vector<VocabEntry> vocab;
  /// Pairs of tokens, the first to be merged first. A pair that occurs again takes the later place.
  std::vector<std::pair<std::string, std::string>> merges;
  /// The vocabulary is written in the characters of byte_level.h, one a byte.
  bool byte_level = false;
  /// Characters that are no tokens become tokens of their bytes, `<0x00>` … `<0xFF>`.
  bool byte_fallback = false;
  /// A piece that is a token is not merged from its characters.
  bool ignore_merges = false;
  /// What stands for characters without a token; without it they are left out.
  std::optional<std::string> unk_token;
  /// Neighbouring characters without a token are one unknown token.
  bool fuse_unk = false;
};

/// What encoding pieces needs to work in, and what it remembers; of one thread at a time, for one
/// model.
struct BpeMemory {
  PieceCache cache;
  std::vector<int32_t> symbols;
  MergeMemory merge;
};

/// Byte-pair encoding of pieces of text: each character's token, then the pairs of neighbours
/// merged, the first of the list of merges before others, left before right.
class BpeModel {
 public:
  /// Throws Error, naming `where`, when a merge names a token that is absent, or makes one; for an
  /// unk_token that is absent; and for two entries of the vocabulary with the same text.
  BpeModel(const BpeParts& parts, const std::string& where);

  /// Adds the ids of a piece, which is text (bytes as they are for byte-level models). Bytes that
  /// are not UTF-8 become byte tokens where the model has them, else each run that could begin a
  /// character is U+FFFD.
  void encode(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& ids) const;

 private:
  void set_byte_ids(const BpeParts& parts);
  void add_merges(const BpeParts& parts, const std::string& where);
  void note_joint(const std::string& left, const std::string& right);
  std::optional<int32_t> id_of(std::string_view text) const;
  void encode_short(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& ids) const;
  void encode_parts(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& ids) const;
  void encode_whole(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& ids) const;
  void add_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  bool add_byte_tokens(std::string_view bytes, std::vector<int32_t>& symbols) const;

  bool byte_level_;
  bool ignore_merges_;
  bool fuse_unk_;
  /// -1: none.
  int32_t unk_id_ = -1;
  /// A token's text (bytes, for byte-level models) to its id.
  std::unordered_map<std::string, int32_t> ids_;
  /// The token of each byte of a byte-level model or a byte fallback; -1: none.
  std::array<int32_t, 256> byte_ids_;
  MergeTable merges_;
  /// Whether long pieces may be cut between characters that no merge joins: bit 256·x+y is set
  /// where some merge's left side ends with byte x and its right side begins with y.
  bool can_cut_ = false;
  std::bitset<65536> joints_;
};

}  // namespace dcformer
