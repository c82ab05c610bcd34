#include "dcformer/text/piece_cache.h"

#include <algorithm>

namespace dcformer {

void PieceCache::insert(std::string_view piece, std::span<const int32_t> ids) {
  if (n_piece_ == kMaxPieces || long_keys_.size() + piece.size() > kMaxKeyBytes ||
      ids_.size() + ids.size() > kMaxIds)
    clear();
  const Key key = key_of(piece);
  size_t i = key.hash % kSlots;
  while (slots_[i].n_byte != 0) i = (i + 1) % kSlots;
  Slot& slot = slots_[i];
  slot.first = key.first;
  slot.last = key.last;
  slot.n_byte = static_cast<uint16_t>(piece.size());
  slot.n_id = static_cast<uint16_t>(ids.size());
  if (piece.size() > 16) {
    slot.last = long_keys_.size();
    long_keys_ += piece;
  }
  if (ids.size() <= 2) {
    std::copy(ids.begin(), ids.end(), slot.ids);
  } else {
    slot.ids[0] = static_cast<int32_t>(ids_.size());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  ++n_piece_;
}

void PieceCache::clear() {
  std::fill(slots_.begin(), slots_.end(), Slot());
  n_piece_ = 0;
  long_keys_.clear();
  ids_.clear();
}

}  // namespace dcformer
