#include "dcformer/text/merge_table.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

// Up to here looking at all ranks for every merge is faster than the heap.
constexpr size_t kShort = 48;
constexpr uint32_t kNone = UINT32_MAX;

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// At least twice as many slots as merges, so that searches are short.
MergeTable::MergeTable(size_t n)
    : slots_(std::bit_ceil(2 * n + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

size_t MergeTable::slot_of(uint64_t pair) const {
  uint64_t hash = (pair ^ pair >> 29) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ hash >> 32) * 0x94D049BB133111EBu;
  size_t i = hash >> shift_;
  while (slots_[i].merge.rank != kNoRank && slots_[i].pair != pair) i = (i + 1) % slots_.size();
  return i;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  return slots_[slot_of(pair_of(left, right))].merge;
}

void MergeTable::apply(std::vector<int32_t>& symbols, MergeMemory& memory) const {
  if (symbols.size() <= kShort) {
    apply_short(symbols, memory);
  } else {
    apply_long(symbols, memory);
  }
}

void MergeTable::apply_short(std::vector<int32_t>& symbols, MergeMemory& memory) const {
  std::vector<uint32_t>& ranks = memory.ranks;
  const auto rank_at = [&](size_t i) {
    return i + 1 < symbols.size() ? find(symbols[i], symbols[i + 1]).rank : kNoRank;
  };
  ranks.resize(symbols.size());
  for (size_t i = 0; i < symbols.size(); ++i) ranks[i] = rank_at(i);
  while (!symbols.empty()) {
    const auto least = std::min_element(ranks.begin(), ranks.end());
    if (*least == kNoRank) break;
    const auto i = static_cast<size_t>(least - ranks.begin());
    symbols[i] = find(symbols[i], symbols[i + 1]).id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(least + 1);
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
}

// Looks up the merge of a symbol with the next one, and queues it.
void MergeTable::pair_up(uint32_t at, MergeMemory& memory) const {
  MergeMemory::Link& link = memory.links[at];
  link.rank = kNoRank;
  if (link.next == kNone) return;
  const Merge merge = find(link.id, memory.links[link.next].id);
  link.rank = merge.rank;
  link.merged = merge.id;
  if (merge.rank == kNoRank) return;
  memory.heap.push_back(uint64_t{merge.rank} << 32 | at);
}

// A heap of (rank, place). An entry whose rank is no longer that of its place is out of date.
void MergeTable::apply_long(std::vector<int32_t>& symbols, MergeMemory& memory) const {
  require(symbols.size() < kNone, "a piece of {} symbols is too long to encode", symbols.size());
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<MergeMemory::Link>& links = memory.links;
  std::vector<uint64_t>& heap = memory.heap;
  links.clear();
  heap.clear();
  for (uint32_t i = 0; i < n; ++i)
    links.push_back({symbols[i], -1, kNoRank, i + 1 < n ? i + 1 : kNone, i > 0 ? i - 1 : kNone});
  for (uint32_t i = 0; i < n; ++i) pair_up(i, memory);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto queue = [&](uint32_t at) {
    const size_t before = heap.size();
    pair_up(at, memory);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    if (links[at].rank != top >> 32) continue;
    MergeMemory::Link& gone = links[links[at].next];
    links[at].id = links[at].merged;
    links[at].next = gone.next;
    if (gone.next != kNone) links[gone.next].previous = at;
    gone.rank = kNoRank;
    queue(at);
    if (links[at].previous != kNone) queue(links[at].previous);
  }
  symbols.clear();
  for (uint32_t i = 0; i != kNone; i = links[i].next) symbols.push_back(links[i].id);
}

}  // namespace dcformer
