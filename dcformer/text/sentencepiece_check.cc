#include "dcformer/text/sentencepiece_check.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

// Field numbers of sentencepiece_model.proto.
enum ModelField : uint32_t { kPieces = 1, kTrainerSpec = 2, kNormalizer = 3, kDenormalizer = 5 };
enum PieceField : uint32_t { kPiece = 1, kType = 3 };
constexpr uint32_t kModelType = 3;
constexpr uint32_t kCharsMap = 2;
constexpr uint64_t kBytePairEncoding = 2;
constexpr uint32_t kUserDefined = 4;

constexpr size_t kMaxPieces = size_t{1} << 20;
// The bound that newer versions of the library set themselves.
constexpr size_t kMaxPieceBytes = 8000;
constexpr size_t kMaxNested = 64;

/// One field of a protocol buffers message: its number, and a number or bytes.
struct Field {
  uint32_t number = 0;
  bool is_bytes = false;
  uint64_t value = 0;
  std::string_view bytes;
};

/// Reads the fields of a message one by one.
class Message {
 public:
  Message(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const uint64_t tag = varint();
    check(tag <= UINT32_MAX && tag >> 3 != 0);
    field = {static_cast<uint32_t>(tag >> 3), false, 0, {}};
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        field.is_bytes = true;
        field.bytes = take(varint());
        break;
      case 5:
        take(4);
        break;
      default:  // Groups: nothing of a model.
        check(false);
    }
    return true;
  }

 private:
  void check(bool condition) const {
    require(condition, "{}: not a SentencePiece model: broken or cut short", where_);
  }
  std::string_view take(uint64_t n) {
    check(n <= rest_.size());
    const std::string_view front = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return front;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    check(false);
    return 0;
  }

  std::string_view rest_;
  const std::string& where_;
};

/// Adds the piece's text to `user_defined` where it is of that type.
void check_piece(std::string_view bytes, size_t id, const std::string& where,
                 std::vector<std::string_view>& user_defined) {
  std::string_view text;
  bool is_user_defined = false;
  Message message(bytes, where);
  for (Field field; message.next(field);) {
    if (field.number == kPiece && field.is_bytes) text = field.bytes;
    if (field.number == kType && !field.is_bytes)
      is_user_defined |= static_cast<uint32_t>(field.value) == kUserDefined;
  }
  require(!text.empty() && text.size() < kMaxPieceBytes && text.find('\0') == text.npos,
          "{}: piece {} has {} bytes, expected 1 to {}, none of them NUL", where, id, text.size(),
          kMaxPieceBytes - 1);
  if (is_user_defined) user_defined.push_back(text);
}

void check_no_rules(std::string_view bytes, const std::string& where) {
  Message message(bytes, where);
  for (Field field; message.next(field);)
    require(field.number != kCharsMap || !field.is_bytes || field.bytes.empty(),
            "{}: the model rewrites its text by rules, expected identity normalisation", where);
}

// In sorted order the pieces that begin a piece are a stack.
void check_nesting(std::vector<std::string_view> pieces, const std::string& where) {
  std::sort(pieces.begin(), pieces.end());
  std::vector<std::string_view> stack;
  for (const std::string_view piece : pieces) {
    while (!stack.empty() && !piece.starts_with(stack.back())) stack.pop_back();
    stack.push_back(piece);
    require(stack.size() <= kMaxNested,
            "{}: more than {} user-defined pieces begin one another, expected fewer", where,
            kMaxNested);
  }
}

}  // namespace

void check_sentencepiece_model(std::string_view model, const std::string& where) {
  bool is_bpe = false;
  size_t n_piece = 0;
  std::vector<std::string_view> user_defined;
  Message message(model, where);
  for (Field field; message.next(field);) {
    if (!field.is_bytes) continue;
    if (field.number == kPieces) {
      require(n_piece < kMaxPieces, "{}: more than {} pieces", where, kMaxPieces);
      check_piece(field.bytes, n_piece++, where, user_defined);
    } else if (field.number == kTrainerSpec) {
      Message trainer(field.bytes, where);
      for (Field inner; trainer.next(inner);)
        if (inner.number == kModelType && !inner.is_bytes)
          is_bpe = inner.value == kBytePairEncoding;
    } else if (field.number == kNormalizer || field.number == kDenormalizer) {
      check_no_rules(field.bytes, where);
    }
  }
  require(n_piece > 0, "{}: not a SentencePiece model: it has no pieces", where);
  require(is_bpe, "{}: the model is not byte-pair encoding, expected that", where);
  check_nesting(std::move(user_defined), where);
}

}  // namespace dcformer
