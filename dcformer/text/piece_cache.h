#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dcformer {

/// The ids of pieces met before, in a flat table of a fixed size that is emptied when it is full:
/// at most some 6 MB. Of one thread at a time.
class PieceCache {
 public:
  /// Longer pieces are not for the cache.
  static constexpr size_t kMaxBytes = 64;

  PieceCache() : slots_(kSlots) {}

  /// Adds the ids of a piece of 1 to kMaxBytes bytes to `ids`; false where it is not known.
  bool find(std::string_view piece, std::vector<int32_t>& ids) const;
  /// Remembers a piece that find() has just not found.
  void insert(std::string_view piece, std::span<const int32_t> ids);

 private:
  static constexpr size_t kSlots = size_t{1} << 16;
  static constexpr size_t kMaxPieces = kSlots / 4 * 3;
  static constexpr size_t kMaxKeyBytes = size_t{1} << 21;
  static constexpr size_t kMaxIds = size_t{1} << 19;

  /// A piece of up to 16 bytes is its length and two words, its first and its last 8 bytes (they
  /// may overlap); of a longer one, `first` is a hash and `last` its place in long_keys_.
  struct Slot {
    uint64_t first = 0;
    uint64_t last = 0;
    /// Up to two ids, or the place of more in ids_.
    int32_t ids[2] = {};
    uint16_t n_id = 0;
    /// 0: the slot is free.
    uint16_t n_byte = 0;
  };
  struct Key {
    uint64_t first, last, hash;
  };

  template <typename Word>
  static uint64_t load(const char* bytes) {
    Word word;
    std::memcpy(&word, bytes, sizeof(word));
    return word;
  }
  static uint64_t mix(uint64_t a, uint64_t b) {
    const auto product =
        static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  static Key key_of(std::string_view piece);
  bool is_at(const Slot& slot, const Key& key, std::string_view piece) const;
  void clear();

  std::vector<Slot> slots_;
  size_t n_piece_ = 0;
  std::string long_keys_;
  std::vector<int32_t> ids_;
};

inline PieceCache::Key PieceCache::key_of(std::string_view piece) {
  const char* data = piece.data();
  const size_t n = piece.size();
  if (n > 16) {
    uint64_t hash = n;
    for (size_t i = 0; i + 8 < n; i += 8) hash = mix(hash, load<uint64_t>(data + i));
    hash = mix(hash, load<uint64_t>(data + n - 8));
    return {hash, 0, hash};
  }
  uint64_t first = 0;
  uint64_t last = 0;
  if (n >= 8) {
    first = load<uint64_t>(data);
    last = load<uint64_t>(data + n - 8);
  } else if (n >= 4) {
    first = load<uint32_t>(data);
    last = load<uint32_t>(data + n - 4);
  } else {
    first = load<uint8_t>(data);
    last = load<uint8_t>(data + n / 2) | load<uint8_t>(data + n - 1) << 8;
  }
  return {first, last, mix(first, last + n)};
}

inline bool PieceCache::is_at(const Slot& slot, const Key& key, std::string_view piece) const {
  if (slot.first != key.first || slot.n_byte != piece.size()) return false;
  if (piece.size() <= 16) return slot.last == key.last;
  return std::memcmp(long_keys_.data() + slot.last, piece.data(), piece.size()) == 0;
}

inline bool PieceCache::find(std::string_view piece, std::vector<int32_t>& ids) const {
  const Key key = key_of(piece);
  for (size_t i = key.hash % kSlots;; i = (i + 1) % kSlots) {
    const Slot& slot = slots_[i];
    if (slot.n_byte == 0) return false;
    if (!is_at(slot, key, piece)) continue;
    if (slot.n_id <= 2) {
      if (slot.n_id > 0) ids.push_back(slot.ids[0]);
      if (slot.n_id > 1) ids.push_back(slot.ids[1]);
    } else {
      const auto more = ids_.begin() + slot.ids[0];
      ids.insert(ids.end(), more, more + slot.n_id);
    }
    return true;
  }
}

}  // namespace dcformer
