#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace dcformer {

/// A regular file mapped for reading. The bytes stay valid as long as a copy of the object, or of
/// `owner()`, lives.
class MappedFile {
 public:
  /// Throws Error naming the file when it is missing, unreadable or not a regular file.
  explicit MappedFile(const std::string& path);

  std::span<const std::byte> bytes() const { return {owner_.get(), size_}; }
  const std::shared_ptr<const std::byte>& owner() const { return owner_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  size_t size_ = 0;
  std::shared_ptr<const std::byte> owner_;
};

}  // namespace dcformer
