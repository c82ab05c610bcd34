#include "dcformer/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

namespace fs = std::filesystem;

void sync_path(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  require(fd >= 0, "{}: {}", path, std::strerror(errno));
  const int result = fsync(fd);
  const int code = errno;
  close(fd);
  require(result == 0, "{}: cannot sync: {}", path, std::strerror(code));
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The file that a path stands for: a link stays one, and what it points to is replaced.
std::string link_target(const std::string& path) {
  std::error_code error;
  fs::path target = path;
  // The system follows no more of them either.
  for (int i = 0; i < 40 && fs::is_symlink(target, error); ++i)
    target = target.parent_path() / fs::read_symlink(target, error);
  return target.string();
}

}  // namespace

void require_replaceable(const std::string& path) {
  std::error_code error;
  require(!fs::exists(path, error) || fs::is_regular_file(path, error), "{}: is not a regular file",
          path);
  const std::string folder = folder_of(link_target(path));
  // With a dot behind it, as a file is then not taken for one.
  const bool writable = access((folder + "/.").c_str(), W_OK | X_OK) == 0;
  require(writable, "{}: cannot write: {}: {}", path, folder, std::strerror(errno));
}

void require_free_space(const std::string& path, uint64_t bytes) {
  const std::string folder = folder_of(link_target(path));
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  require(!error, "{}: cannot ask {} for its free space: {}", path, folder, error.message());
  require(space.available >= bytes, "{}: takes {} bytes, and the disk has {} free", path, bytes,
          space.available);
}

std::string read_file(const std::string& path) {
  std::error_code error;
  require(!fs::is_directory(path, error), "{}: is a folder, expected a file", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "{}: {}", path, std::strerror(errno == 0 ? EIO : errno));
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  require(!file.bad(), "{}: read error", path);
  return bytes;
}

void replace_file(const std::string& path, const std::function<void(const std::string&)>& write) {
  require_replaceable(path);
  const std::string target = link_target(path);
  const std::string beside = target + ".partial";
  try {
    write(beside);
    sync_path(beside, O_RDWR);
    const bool renamed = std::rename(beside.c_str(), target.c_str()) == 0;
    require(renamed, "{}: cannot rename: {}", path, std::strerror(errno));
  } catch (...) {
    std::remove(beside.c_str());
    throw;
  }
  sync_folder(folder_of(target));
}

void write_all(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, "{}: cannot write: {}", path, std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void sync_file(int fd, const std::string& path) {
  const bool synced = fsync(fd) == 0;
  require(synced, "{}: cannot sync: {}", path, std::strerror(errno));
}

void sync_folder(const std::string& path) { sync_path(path, O_RDONLY | O_DIRECTORY); }

void replace_file(const std::string& path, std::string_view bytes) {
  replace_file(path, [&](const std::string& beside) {
    errno = 0;
    std::ofstream file(beside, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    require(file.good(), "{}: cannot write: {}", path, std::strerror(errno == 0 ? EIO : errno));
  });
}

}  // namespace dcformer
