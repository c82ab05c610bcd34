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

void sync_path(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  require(fd >= 0, "{}: {}", path, std::strerror(errno));
  const int result = fsync(fd);
  const int code = errno;
  close(fd);
  require(result == 0, "{}: cannot sync: {}", path, std::strerror(code));
}

}  // namespace

std::string read_file(const std::string& path) {
  require(!std::filesystem::is_directory(path), "{}: is a folder, expected a file", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "{}: {}", path, std::strerror(errno == 0 ? EIO : errno));
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  require(!file.bad(), "{}: read error", path);
  return bytes;
}

void replace_file(const std::string& path, const std::function<void(const std::string&)>& write) {
  const std::string beside = path + ".partial";
  try {
    write(beside);
    sync_path(beside, O_RDWR);
    require(std::rename(beside.c_str(), path.c_str()) == 0, "{}: cannot rename: {}", path,
            std::strerror(errno));
  } catch (...) {
    std::remove(beside.c_str());
    throw;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  sync_folder(folder.empty() ? "." : folder);
}

void write_all(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, "{}: cannot write: {}", path, std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
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
