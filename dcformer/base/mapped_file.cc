#include "dcformer/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() { close(fd); }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(fd >= 0, "{}: {}", path, std::strerror(errno));
  const FileDescriptor guard{fd};
  struct stat status {};
  const bool known = fstat(fd, &status) == 0;
  require(known, "{}: {}", path, std::strerror(errno));
  require(S_ISREG(status.st_mode), "{}: not a regular file", path);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  require(memory != MAP_FAILED, "{}: cannot map: {}", path, std::strerror(errno));
  owner_ = std::shared_ptr<const std::byte>(
      static_cast<const std::byte*>(memory),
      [size = size_](const std::byte* data) { munmap(const_cast<std::byte*>(data), size); });
}

}  // namespace dcformer
