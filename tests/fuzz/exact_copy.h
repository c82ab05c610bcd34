#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace dcformer::test {

/// Memory of exactly the input's size, so that the sanitizer sees a read one byte beyond it.
inline std::shared_ptr<const std::byte> exact_copy(const uint8_t* data, size_t size) {
  const std::shared_ptr<std::byte[]> copy(new std::byte[size]);
  if (size > 0) std::memcpy(copy.get(), data, size);
  return {copy, copy.get()};
}

}  // namespace dcformer::test
