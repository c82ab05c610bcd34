#pragma once

#include <string>
#include <string_view>

namespace dcformer {

/// XXH3's 128 bits (xxhash.com, version 0.8) as 32 hexadecimal digits: tells altered bytes from
/// whole ones, and is no defence against somebody who alters them on purpose.
std::string xxh3_128(std::string_view bytes);

/// The same of a file. Throws Error naming it when it cannot be read.
std::string xxh3_128_of_file(const std::string& path);

}  // namespace dcformer
