#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dcformer {

/// The whole file as bytes. Throws Error naming the file when it is missing or unreadable.
std::string read_file(const std::string& path);

/// Writes a file so that `path` holds either what it held before or all of the new bytes, whatever
/// happens in between: written beside, synced, renamed, the folder synced. `write` gets the name of
/// the file to fill. A link is followed. Throws Error naming the file; the unfinished file is
/// removed.
void replace_file(const std::string& path, const std::function<void(const std::string&)>& write);

/// The same for bytes at hand.
void replace_file(const std::string& path, std::string_view bytes);

/// Throws Error naming the file where replace_file cannot put one: something else than a regular
/// file stands there, or the folder is missing or may not be written. For asking before long work.
void require_replaceable(const std::string& path);

/// Throws Error naming the file where its disk has less than `bytes` of free space. For asking
/// before the first byte of a large file.
void require_free_space(const std::string& path, uint64_t bytes);

/// Writes all bytes to an open file that grows at its end. Throws Error naming `path` when it
/// cannot.
void write_all(int fd, const std::string& path, std::string_view bytes);

/// Waits until what was written to an open file is on the disk. Throws Error naming `path`.
void sync_file(int fd, const std::string& path);

/// Makes what was created, renamed or removed in a folder last. Throws Error naming it.
void sync_folder(const std::string& path);

}  // namespace dcformer
