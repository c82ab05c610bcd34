#pragma once

#include <string>
#include <string_view>

namespace dcformer {

/// A text file's bytes; names that end in .gz are unpacked. Throws Error naming the file when it is
/// missing, unreadable, empty, a broken or cut gzip file, larger than 16 GiB unpacked, or not valid
/// UTF-8 (with the byte).
std::string read_text_file(const std::string& path);

/// Unpacks gzip bytes. Throws Error naming `where`.
std::string unpack_gzip(std::string_view packed, const std::string& where);

}  // namespace dcformer
