#include "dcformer/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dcformer/base/check.h"

namespace dcformer {

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = folder + "/" + kFile;
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  require(fd_ >= 0, "{}: cannot open: {}", path, std::strerror(errno));
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    std::string holder(32, '\0');
    holder.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(fd_, holder.data(), 32, 0))));
    holder.resize(std::min(holder.size(), holder.find_first_not_of("0123456789")));
    close(fd_);
    require(code == EWOULDBLOCK, "{}: cannot lock: {}", path, std::strerror(code));
    fail("{}: process {} works in this folder; wait for its end, or choose another folder", folder,
         holder.empty() ? "(unknown)" : holder);
  }
  // The number is for the message above alone: where it cannot be written, the lock holds as well.
  const std::string number = std::to_string(getpid()) + "\n";
  if (ftruncate(fd_, 0) != 0 || pwrite(fd_, number.data(), number.size(), 0) < 0) return;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace dcformer
