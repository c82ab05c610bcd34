#pragma once

#include <cstdint>
#include <string_view>

namespace dcformer {

/// The CRC-32C (Castagnoli) of bytes, as RFC 3720 defines it.
uint32_t crc32c(std::string_view bytes);

}  // namespace dcformer
