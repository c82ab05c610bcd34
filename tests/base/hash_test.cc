#include "dcformer/base/hash.h"

#include <gtest/gtest.h>

#include "dcformer/base/error.h"
#include "dcformer/base/file.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

// The value that the xxhash project publishes for no bytes at all (seed 0); `xxhsum -H2` prints the
// other.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(xxh3_128(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh3_128("abc"), "06b05ab6733a618578af5f94892f3950");
}

TEST(Hash, OfAFileIsThatOfItsBytes) {
  const test::TemporaryFolder folder;
  replace_file(folder / "file", "abc");
  EXPECT_EQ(xxh3_128_of_file(folder / "file"), xxh3_128("abc"));
  replace_file(folder / "empty", "");
  EXPECT_EQ(xxh3_128_of_file(folder / "empty"), xxh3_128(""));
  EXPECT_THROW(xxh3_128_of_file(folder / "absent"), Error);
}

}  // namespace
}  // namespace dcformer
