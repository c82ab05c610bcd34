#include "dcformer/io/zip_archive.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "dcformer/base/check.h"
#include "dcformer/io/byte_reader.h"

namespace dcformer {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kDirectoryEnd = 0x06054b50;
constexpr uint32_t kZip64End = 0x06064b50;
constexpr uint32_t kZip64Locator = 0x07064b50;
constexpr uint16_t kZip64Field = 1;
constexpr uint16_t kEncrypted = 1;
// Of the records without their variable parts.
constexpr size_t kDirectoryEndSize = 22;
constexpr size_t kZip64LocatorSize = 20;
constexpr size_t kLongestComment = 65535;
constexpr uint32_t kIn64 = UINT32_MAX;

using Bytes = std::span<const std::byte>;

// Where the central directory lies.
struct Directory {
  uint64_t n_entry;
  uint64_t size;
  uint64_t begin;
};

uint32_t signature_at(Bytes bytes, size_t at) {
  uint32_t signature;
  std::memcpy(&signature, bytes.data() + at, sizeof(signature));
  return signature;
}

// The last place where an end record fits with its comment filling the rest of the file.
size_t find_directory_end(Bytes bytes, const std::string& where) {
  require(bytes.size() >= kDirectoryEndSize, "{}: {} bytes are too few for a zip file", where,
          bytes.size());
  const size_t last = bytes.size() - kDirectoryEndSize;
  for (size_t comment = 0; comment <= std::min(last, kLongestComment); ++comment) {
    const size_t at = last - comment;
    if (signature_at(bytes, at) != kDirectoryEnd) continue;
    uint16_t length;
    std::memcpy(&length, bytes.data() + at + 20, sizeof(length));
    if (length == comment) return at;
  }
  fail("{}: a zip file without its directory at the end: cut short", where);
}

Directory read_zip64_end(Bytes bytes, size_t locator_at, const std::string& where) {
  ByteReader locator(bytes, where, locator_at);
  require(locator.number<uint32_t>() == kZip64Locator, "{}: byte {}: expected a zip64 locator",
          where, locator_at);
  locator.number<uint32_t>();  // the disk
  ByteReader end(bytes, where, static_cast<size_t>(locator.number<uint64_t>()));
  const size_t at = end.at();
  require(end.number<uint32_t>() == kZip64End, "{}: byte {}: expected a zip64 directory end", where,
          at);
  end.bytes(8 + 2 + 2 + 4 + 4 + 8);  // size, versions, disks, entries on this disk
  Directory directory{};
  directory.n_entry = end.number<uint64_t>();
  directory.size = end.number<uint64_t>();
  directory.begin = end.number<uint64_t>();
  return directory;
}

Directory read_directory_end(Bytes bytes, const std::string& where) {
  const size_t at = find_directory_end(bytes, where);
  ByteReader end(bytes, where, at + 4);
  end.bytes(2 + 2 + 2);  // disks, entries on this disk
  Directory directory{};
  directory.n_entry = end.number<uint16_t>();
  directory.size = end.number<uint32_t>();
  directory.begin = end.number<uint32_t>();
  const bool in_64 =
      directory.n_entry == UINT16_MAX || directory.size == kIn64 || directory.begin == kIn64;
  if (in_64 && at >= kZip64LocatorSize)
    directory = read_zip64_end(bytes, at - kZip64LocatorSize, where);
  require(directory.begin <= at && directory.size <= at - directory.begin,
          "{}: its directory claims the {} bytes from {} on, of {} before its end", where,
          directory.size, directory.begin, at);
  return directory;
}

// The 64-bit forms of those fields that say so, in their fixed order.
void read_zip64_field(Bytes extra, const std::string& where,
                      std::initializer_list<uint64_t*> fields) {
  ByteReader all(extra, where);
  while (all.left() >= 4) {
    const auto id = all.number<uint16_t>();
    ByteReader field(all.bytes(all.number<uint16_t>()), where);
    if (id != kZip64Field) continue;
    for (uint64_t* value : fields)
      if (*value == kIn64) *value = field.number<uint64_t>();
    return;
  }
}

struct Entry {
  ZipArchive::Member member;
  uint64_t header;
};

Entry read_entry(ByteReader& directory) {
  const size_t at = directory.at();
  const std::string& file = directory.where();
  require(directory.number<uint32_t>() == kDirectoryEntry,
          "{}: byte {} of its directory: expected an entry", file, at);
  directory.bytes(2 + 2);  // versions
  const auto flags = directory.number<uint16_t>();
  const auto method = directory.number<uint16_t>();
  directory.bytes(2 + 2 + 4);  // time, date, checksum
  uint64_t packed = directory.number<uint32_t>();
  uint64_t size = directory.number<uint32_t>();
  const auto name_size = directory.number<uint16_t>();
  const auto extra_size = directory.number<uint16_t>();
  const auto comment_size = directory.number<uint16_t>();
  directory.bytes(2 + 2 + 4);  // disk, attributes
  uint64_t header = directory.number<uint32_t>();
  const std::string name(directory.text(name_size));
  const std::string where = fmt::format("{}: member '{}'", file, name);
  read_zip64_field(directory.bytes(extra_size), where, {&size, &packed, &header});
  directory.bytes(comment_size);
  require((flags & kEncrypted) == 0, "{}: is encrypted", where);
  require(method == 0, "{}: is compressed (method {}), expected to be stored as it is", where,
          method);
  require(packed == size, "{}: {} bytes are stored as {}", where, size, packed);
  return {{name, 0, static_cast<size_t>(size)}, header};
}

// Behind the member's own header, whose name and padding have lengths of their own.
size_t data_begin(Bytes before_directory, const Entry& entry, const std::string& file) {
  const std::string where = fmt::format("{}: member '{}'", file, entry.member.name);
  require(entry.header < before_directory.size(),
          "{}: begins at byte {}, beyond the {} before the directory", where, entry.header,
          before_directory.size());
  ByteReader header(before_directory, where, static_cast<size_t>(entry.header));
  require(header.number<uint32_t>() == kLocalHeader, "{}: no header at byte {}", where,
          entry.header);
  header.bytes(2 + 2 + 2 + 2 + 2 + 4 + 4 + 4);
  const auto name_size = header.number<uint16_t>();
  const auto extra_size = header.number<uint16_t>();
  require(header.text(name_size) == entry.member.name,
          "{}: the header at byte {} is of another name", where, entry.header);
  header.bytes(extra_size);
  require(entry.member.size <= header.left(),
          "{}: its {} bytes from {} on lie outside the {} before the directory", where,
          entry.member.size, header.at(), before_directory.size());
  return header.at();
}

void require_disjoint(std::vector<ZipArchive::Member>& members, const std::string& where) {
  for (size_t i = 1; i < members.size(); ++i)
    require(members[i].begin >= members[i - 1].begin + members[i - 1].size,
            "{}: members '{}' and '{}' overlap", where, members[i - 1].name, members[i].name);
  std::vector<std::string_view> names;
  for (const ZipArchive::Member& member : members) names.push_back(member.name);
  std::sort(names.begin(), names.end());
  const auto repeated = std::adjacent_find(names.begin(), names.end());
  require(repeated == names.end(), "{}: two members are called '{}'", where,
          repeated == names.end() ? "" : *repeated);
}

}  // namespace

bool ZipArchive::recognises(Bytes bytes) {
  return bytes.size() >= 4 && signature_at(bytes, 0) == kLocalHeader;
}

ZipArchive ZipArchive::parse(Bytes bytes, const std::string& where) {
  const Directory directory = read_directory_end(bytes, where);
  const auto begin = static_cast<size_t>(directory.begin);
  ByteReader entries(bytes.subspan(begin, static_cast<size_t>(directory.size)), where);
  ZipArchive archive;
  while (entries.left() > 0) {
    Entry entry = read_entry(entries);
    entry.member.begin = data_begin(bytes.first(begin), entry, where);
    archive.members_.push_back(std::move(entry.member));
  }
  require(archive.members_.size() == directory.n_entry,
          "{}: its directory holds {} members and claims {}", where, archive.members_.size(),
          directory.n_entry);
  std::stable_sort(archive.members_.begin(), archive.members_.end(),
                   [](const Member& a, const Member& b) { return a.begin < b.begin; });
  require_disjoint(archive.members_, where);
  return archive;
}

const ZipArchive::Member* ZipArchive::find(const std::string& name) const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const Member& m) { return m.name == name; });
  return found == members_.end() ? nullptr : &*found;
}

}  // namespace dcformer
