#include "dcformer/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "dcformer/base/mapped_file.h"

namespace dcformer {

std::string xxh3_128(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string xxh3_128_of_file(const std::string& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return xxh3_128({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace dcformer
