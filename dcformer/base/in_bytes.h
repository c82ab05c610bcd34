#pragma once

#include <string>

namespace dcformer {

/// A number of bytes for people: "512 B", "1.5 KiB", "24.0 GiB".
std::string in_bytes(double bytes);

}  // namespace dcformer
