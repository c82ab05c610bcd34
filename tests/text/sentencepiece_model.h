#pragma once

#include <cstdint>
#include <string>

namespace dcformer::test {

// SentencePiece models by hand, field by field (sentencepiece_model.proto), to say in tests what no
// trainer writes.

enum class PieceType : uint64_t { normal = 1, unknown, control, user_defined, unused, byte };

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}

inline std::string number_field(uint64_t number, uint64_t value) {
  return varint(number << 3) + varint(value);
}

inline std::string bytes_field(uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

inline std::string piece_field(const std::string& text, PieceType type = PieceType::normal) {
  return bytes_field(1, bytes_field(1, text) + number_field(3, static_cast<uint64_t>(type)));
}

/// The unknown piece, `</s>` as a control, the 256 bytes.
inline std::string usual_pieces() {
  const char* digits = "0123456789ABCDEF";
  std::string pieces =
      piece_field("<unk>", PieceType::unknown) + piece_field("</s>", PieceType::control);
  for (int i = 0; i < 256; ++i)
    pieces +=
        piece_field(std::string("<0x") + digits[i / 16] + digits[i % 16] + ">", PieceType::byte);
  return pieces;
}

/// Byte-pair encoding with byte fallback.
inline std::string bpe_trainer() {
  return bytes_field(2, number_field(3, 2) + number_field(35, 1));
}

/// Neither dummy prefix nor removal of blanks, blanks escaped; then `more`.
inline std::string identity_normalizer(const std::string& more = {}) {
  return bytes_field(3, number_field(3, 0) + number_field(4, 0) + number_field(5, 1) + more);
}

}  // namespace dcformer::test
