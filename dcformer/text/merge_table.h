#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dcformer {

/// What merging needs to work in; of one thread at a time.
struct MergeMemory {
  /// A symbol of a long piece: what it is linked to, and its merge with the next one.
  struct Link {
    int32_t id;
    int32_t merged;
    uint32_t rank;
    uint32_t next;
    uint32_t previous;
  };
  std::vector<Link> links;
  std::vector<uint64_t> heap;
  std::vector<uint32_t> ranks;
};

/// The merges of a byte-pair encoding by their two ids, in a flat table, and the algorithm that
/// applies them.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };

  /// For at most `n` merges.
  explicit MergeTable(size_t n = 0);

  /// Adds a merge, or replaces the one of the same pair.
  void set(int32_t left, int32_t right, Merge merge);
  /// The merge of a pair; rank kNoRank where there is none.
  Merge find(int32_t left, int32_t right) const;

  /// Merges neighbours until none can be, the lowest rank first, left before right. Takes time
  /// n·log(n) for n symbols.
  void apply(std::vector<int32_t>& symbols, MergeMemory& memory) const;

 private:
  struct Slot {
    uint64_t pair = 0;
    Merge merge;
  };

  size_t slot_of(uint64_t pair) const;
  void apply_short(std::vector<int32_t>& symbols, MergeMemory& memory) const;
  void apply_long(std::vector<int32_t>& symbols, MergeMemory& memory) const;
  void pair_up(uint32_t at, MergeMemory& memory) const;

  std::vector<Slot> slots_;
  int shift_ = 0;
};

}  // namespace dcformer
