#include "dcformer/io/zip_archive.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/io/expect_error.h"
#include "tests/io/torch_bytes.h"

namespace dcformer {
namespace {

using test::le;
using test::zip_bytes;

ZipArchive parse(const std::string& bytes) {
  const std::vector<char> exact(bytes.begin(), bytes.end());
  return ZipArchive::parse({reinterpret_cast<const std::byte*>(exact.data()), exact.size()}, "f");
}

void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) {
  test::expect_error([&] { parse(bytes); }, parts);
}

// The bytes with others written at `at`, counted from the end where negative.
std::string with(std::string bytes, ptrdiff_t at, const std::string& other) {
  const size_t place = at < 0 ? bytes.size() - static_cast<size_t>(-at) : static_cast<size_t>(at);
  return bytes.replace(place, other.size(), other);
}

TEST(ZipArchive, FindsStoredMembers) {
  for (const bool zip64 : {false, true}) {
    const std::string bytes = zip_bytes({{"a/b", "hello"}, {"c", ""}, {"d", "x"}}, zip64);
    const ZipArchive archive = parse(bytes);
    ASSERT_EQ(archive.members().size(), 3u);
    const ZipArchive::Member* member = archive.find("a/b");
    ASSERT_NE(member, nullptr);
    EXPECT_EQ(bytes.substr(member->begin, member->size), "hello");
    EXPECT_EQ(member->begin % 64, 0u);
    EXPECT_EQ(archive.find("c")->size, 0u);
    EXPECT_EQ(archive.find("e"), nullptr);
  }
  EXPECT_EQ(parse(zip_bytes({})).members().size(), 0u);
}

TEST(ZipArchive, ACommentMayFollow) {
  std::string bytes = zip_bytes({{"a", "hello"}});
  bytes = with(bytes, -2, le<uint16_t>(3)) + "abc";
  EXPECT_NE(parse(bytes).find("a"), nullptr);
}

TEST(ZipArchive, EveryPrefixIsRefused) {
  for (const bool zip64 : {false, true}) {
    const std::string bytes = zip_bytes({{"a", "hello"}, {"b", "you"}}, zip64);
    for (size_t n = 0; n < bytes.size(); ++n) expect_refused(bytes.substr(0, n), {"f: "});
  }
}

TEST(ZipArchive, RefusesMembersThatAreNotStored) {
  expect_refused(zip_bytes({{"a", "hello", 8}}), {"f: member 'a'", "compressed (method 8)"});
  expect_refused(zip_bytes({{"a", "hello", 0, 1}}), {"f: member 'a'", "encrypted"});
}

TEST(ZipArchive, RefusesNamesThatRepeat) {
  expect_refused(zip_bytes({{"a", "1"}, {"b", "2"}, {"a", "3"}}), {"two members are called 'a'"});
}

// Of a member called "a": its directory entry is 47 bytes long and ends 22 before the end.
TEST(ZipArchive, RefusesPlacesAndSizesOutside) {
  const std::string bytes = zip_bytes({{"a", "hello"}});
  const ptrdiff_t entry = -22 - 47;
  expect_refused(with(bytes, entry, "QK"), {"expected an entry"});
  expect_refused(with(bytes, entry + 24, le<uint32_t>(6)),
                 {"member 'a'", "6 bytes are stored as 5"});
  expect_refused(with(with(bytes, entry + 20, le<uint32_t>(6)), entry + 24, le<uint32_t>(6)),
                 {"member 'a'", "lie outside"});
  expect_refused(
      with(with(bytes, entry + 20, le<uint32_t>(1u << 31)), entry + 24, le<uint32_t>(1u << 31)),
      {"member 'a'", "2147483648 bytes", "lie outside"});
  expect_refused(with(bytes, entry + 42, le<uint32_t>(1)), {"member 'a'", "no header at byte 1"});
  expect_refused(with(bytes, entry + 42, le<uint32_t>(1 << 30)), {"member 'a'", "begins at byte"});
  expect_refused(with(bytes, entry + 46, "b"), {"member 'b'", "another name"});
  expect_refused(with(bytes, entry + 28, le<uint16_t>(5000)), {"bytes are expected"});
  expect_refused(with(bytes, -12, le<uint16_t>(2)), {"holds 1 members and claims 2"});
  expect_refused(with(bytes, -10, le<uint32_t>(48)), {"its directory claims"});
  expect_refused(with(bytes, -10, le<uint32_t>(46)), {"f: "});
  expect_refused(with(bytes, -6, le<uint32_t>(1 << 30)), {"its directory claims"});
}

TEST(ZipArchive, RefusesOverlaps) {
  std::string bytes = zip_bytes({{"a", "hello"}, {"a", "you"}});
  // The second entry points to the first one's header: the same data under one name twice.
  expect_refused(with(bytes, -22 - 47 + 42, le<uint32_t>(0)), {"f: "});
  // The first grows over the second.
  const ptrdiff_t first = -22 - 94;
  bytes = with(with(bytes, first + 20, le<uint32_t>(66)), first + 24, le<uint32_t>(66));
  expect_refused(bytes, {"members 'a' and 'a' overlap"});
}

TEST(ZipArchive, Refuses64BitPlacesOutside) {
  const std::string bytes = zip_bytes({{"a", "hello"}}, true);
  const ptrdiff_t locator = -22 - 20;
  const ptrdiff_t end = locator - 56;
  for (const uint64_t far : {uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 10, uint64_t{1} << 63}) {
    expect_refused(with(bytes, locator + 8, le(far)), {"f: byte", "beyond the end"});
    expect_refused(with(bytes, end + 40, le(far)), {"its directory claims"});
    expect_refused(with(bytes, end + 48, le(far)), {"its directory claims"});
    expect_refused(with(bytes, end + 32, le(far)), {"holds 1 members and claims"});
    const ptrdiff_t extra = end - 24;
    expect_refused(with(bytes, extra, le(far)), {"member 'a'", "are stored as"});
    expect_refused(with(with(bytes, extra, le(far)), extra + 8, le(far)),
                   {"member 'a'", "lie outside"});
    expect_refused(with(bytes, extra + 16, le(far)), {"member 'a'", "begins at byte"});
  }
  expect_refused(with(bytes, locator, "QK"), {"expected a zip64 locator"});
  expect_refused(with(bytes, end, "QK"), {"expected a zip64 directory end"});
}

}  // namespace
}  // namespace dcformer
