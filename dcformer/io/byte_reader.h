#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "dcformer/base/check.h"

namespace dcformer {

/// Walks through the bytes of a file from a stranger: little-endian numbers and runs of bytes, with
/// an Error that names the file and the byte where something reaches beyond the end.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string where, size_t at = 0)
      : bytes_(bytes), where_(std::move(where)), at_(at) {
    require(at <= bytes.size(), "{}: byte {} lies beyond the end, {}", where_, at, bytes.size());
  }

  const std::string& where() const { return where_; }
  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  /// The next n bytes. Throws Error when fewer are left.
  std::span<const std::byte> bytes(uint64_t n) {
    require(n <= left(), "{}: byte {}: {} bytes are expected and {} are left", where_, at_, n,
            left());
    const std::span<const std::byte> part = bytes_.subspan(at_, static_cast<size_t>(n));
    at_ += static_cast<size_t>(n);
    return part;
  }
  std::string_view text(uint64_t n) {
    const std::span<const std::byte> part = bytes(n);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  /// The next little-endian number.
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  std::string where_;
  size_t at_;
};

}  // namespace dcformer
