#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace dcformer {

/// The members of a zip file that are stored as they are, as PyTorch writes them (PKWARE's
/// APPNOTE.TXT 6.3.9, zip64 included).
class ZipArchive {
 public:
  struct Member {
    std::string name;
    size_t begin;  // bytes from the file's start
    size_t size;
  };

  /// Reads the central directory at the file's end and each member's own header. Throws Error,
  /// naming `where` and the member, for anything that does not hold: a directory or members beyond
  /// the file, members that overlap or repeat a name, are compressed or encrypted, or lie on
  /// another disk.
  static ZipArchive parse(std::span<const std::byte> bytes, const std::string& where);

  /// The file begins as a zip file does.
  static bool recognises(std::span<const std::byte> bytes);

  /// In the order of their data.
  const std::vector<Member>& members() const { return members_; }
  /// Null when there is none of that name.
  const Member* find(const std::string& name) const;

 private:
  std::vector<Member> members_;
};

}  // namespace dcformer
