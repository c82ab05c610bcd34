#include "dcformer/text/bpe_model.h"

#include <algorithm>

#include "dcformer/base/check.h"
#include "dcformer/base/utf8.h"
#include "dcformer/text/byte_level.h"
#include "dcformer/text/characters.h"

namespace dcformer {
namespace {

// The length of `<0x41>`.
constexpr size_t kByteToken = 6;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

size_t index_of(char byte) { return static_cast<unsigned char>(byte); }

bool is_byte_token(std::string_view text) {
  return text.size() == kByteToken && text.starts_with("<0x") && text.ends_with('>');
}

}  // namespace

BpeModel::BpeModel(const BpeParts& parts, const std::string& where)
    : byte_level_(parts.byte_level),
      ignore_merges_(parts.ignore_merges),
      fuse_unk_(parts.fuse_unk) {
  ids_.reserve(parts.vocab.size());
  for (const VocabEntry& entry : parts.vocab)
    require(ids_.emplace(entry.text, entry.id).second, "{}.vocab: {} occurs twice", where,
            in_quotes(entry.text));
  if (parts.unk_token) {
    const std::optional<int32_t> id = id_of(*parts.unk_token);
    require(id.has_value(), "{}.unk_token: {} is not in the vocabulary", where,
            in_quotes(*parts.unk_token));
    unk_id_ = *id;
  }
  set_byte_ids(parts);
  add_merges(parts, where);
  if (!byte_level_) return;
  // From here on tokens are asked for by their bytes.
  std::unordered_map<std::string, int32_t> by_bytes;
  by_bytes.reserve(ids_.size());
  for (const auto& [text, id] : ids_)
    if (const auto bytes = characters_to_bytes(text)) by_bytes.emplace(*bytes, id);
  ids_ = std::move(by_bytes);
}

void BpeModel::set_byte_ids(const BpeParts& parts) {
  byte_ids_.fill(-1);
  if (!parts.byte_level && !parts.byte_fallback) return;
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string text = parts.byte_level
                                 ? bytes_to_characters(std::string(1, static_cast<char>(byte)))
                                 : fmt::format("<0x{:02X}>", byte);
    byte_ids_[byte] = id_of(text).value_or(-1);
  }
}

void BpeModel::add_merges(const BpeParts& parts, const std::string& where) {
  merges_ = MergeTable(parts.merges.size());
  const bool all_bytes = std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
  can_cut_ = all_bytes && !ignore_merges_;
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const auto& [left, right] = parts.merges[rank];
    const auto id_in_merge = [&](const std::string& text) {
      const std::optional<int32_t> id = id_of(text);
      require(id.has_value(), "{}.merges[{}]: {} is not in the vocabulary", where, rank,
              in_quotes(text));
      return *id;
    };
    const int32_t merged = id_in_merge(left + right);
    merges_.set(id_in_merge(left), id_in_merge(right), {static_cast<uint32_t>(rank), merged});
    note_joint(left, right);
  }
}

// A merge of byte tokens joins other bytes than those of its text.
void BpeModel::note_joint(const std::string& left, const std::string& right) {
  if (left.empty() || right.empty()) return;
  std::string joint = {left.back(), right.front()};
  if (byte_level_) {
    const auto left_bytes = characters_to_bytes(left);
    const auto right_bytes = characters_to_bytes(right);
    if (!left_bytes || !right_bytes) return;
    joint = {left_bytes->back(), right_bytes->front()};
  } else if (is_byte_token(left.substr(left.size() - std::min(left.size(), kByteToken))) ||
             is_byte_token(right.substr(0, kByteToken))) {
    can_cut_ = false;
  }
  joints_.set(index_of(joint[0]) * 256 + index_of(joint[1]));
}

std::optional<int32_t> BpeModel::id_of(std::string_view text) const {
  const auto found = ids_.find(std::string(text));
  return found == ids_.end() ? std::nullopt : std::optional<int32_t>(found->second);
}

void BpeModel::encode(std::string_view piece, BpeMemory& memory, std::vector<int32_t>& ids) const {
  if (piece.size() <= PieceCache::kMaxBytes) {
    encode_short(piece, memory, ids);
  } else if (can_cut_) {
    encode_parts(piece, memory, ids);
  } else {
    encode_whole(piece, memory, ids);
  }
}

void BpeModel::encode_short(std::string_view piece, BpeMemory& memory,
                            std::vector<int32_t>& ids) const {
  if (piece.empty() || memory.cache.find(piece, ids)) return;
  const size_t before = ids.size();
  encode_whole(piece, memory, ids);
  memory.cache.insert(piece, std::span(ids).subspan(before));
}

// No merge reaches over a place that none joins, so the ids are those of the parts.
void BpeModel::encode_parts(std::string_view piece, BpeMemory& memory,
                            std::vector<int32_t>& ids) const {
  size_t begin = 0;
  for (size_t i = 1; i <= piece.size(); ++i) {
    const bool at_end = i == piece.size();
    const bool within_character = !at_end && !byte_level_ && (index_of(piece[i]) & 0xC0) == 0x80;
    if (within_character) continue;
    if (!at_end && joints_.test(index_of(piece[i - 1]) * 256 + index_of(piece[i]))) continue;
    const std::string_view part = piece.substr(begin, i - begin);
    if (part.size() <= PieceCache::kMaxBytes) {
      encode_short(part, memory, ids);
    } else {
      encode_whole(part, memory, ids);
    }
    begin = i;
  }
}

void BpeModel::encode_whole(std::string_view piece, BpeMemory& memory,
                            std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto id = id_of(piece)) {
      ids.push_back(*id);
      return;
    }
  }
  memory.symbols.clear();
  add_symbols(piece, memory.symbols);
  merges_.apply(memory.symbols, memory.merge);
  ids.insert(ids.end(), memory.symbols.begin(), memory.symbols.end());
}

void BpeModel::add_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  bool after_unknown = false;
  const auto add_unknown = [&] {
    if (unk_id_ >= 0 && !(after_unknown && fuse_unk_)) symbols.push_back(unk_id_);
    after_unknown = true;
  };
  while (!piece.empty()) {
    const Utf8Step step =
        byte_level_ ? Utf8Step{Utf8Front::character, 1} : utf8_front(piece.substr(0, 4));
    const std::string_view character = piece.substr(0, step.length);
    piece.remove_prefix(step.length);
    const bool is_text = step.front == Utf8Front::character && !byte_level_;
    const std::optional<int32_t> id = is_text ? id_of(character) : std::nullopt;
    if (id) {
      symbols.push_back(*id);
    } else if (!add_byte_tokens(character, symbols)) {
      const auto replacement = is_text || byte_level_ ? std::nullopt : id_of(kReplacement);
      if (!replacement) {
        add_unknown();
        continue;
      }
      symbols.push_back(*replacement);
    }
    after_unknown = false;
  }
}

bool BpeModel::add_byte_tokens(std::string_view bytes, std::vector<int32_t>& symbols) const {
  const auto has_token = [&](char byte) { return byte_ids_[index_of(byte)] >= 0; };
  if (!std::all_of(bytes.begin(), bytes.end(), has_token)) return false;
  for (const char byte : bytes) symbols.push_back(byte_ids_[index_of(byte)]);
  return true;
}

}  // namespace dcformer
