#pragma once

#include <string>

namespace dcformer {

/// The right to write into a folder, held until destruction or the end of the process, however it
/// ends: an flock on the file `lock` in it, which names the holder's process.
class FolderLock {
 public:
  /// Throws Error naming the folder, and the process that holds it where that is the reason.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FolderLock& operator=(FolderLock&&) = delete;

  /// The name of the file.
  static constexpr const char* kFile = "lock";

 private:
  int fd_ = -1;
};

}  // namespace dcformer
