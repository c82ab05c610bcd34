#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "dcformer/base/check.h"

namespace dcformer::test {

/// A new empty folder, removed with all that is in it at the end of the object's life.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "dcformer-test-XXXXXX").string();
    require(mkdtemp(pattern.data()) != nullptr, "{}: cannot make a temporary folder", pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  /// The path of an entry in it.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace dcformer::test
