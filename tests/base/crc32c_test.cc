#include "dcformer/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace dcformer {
namespace {

// RFC 3720, B.4, and the check value that catalogues of CRCs give.
TEST(Crc32c, HasThePublishedValues) {
  std::string up;
  for (char c = 0; c < 32; ++c) up += c;
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(up), 0x46dd794eu);
  EXPECT_EQ(crc32c(std::string(up.rbegin(), up.rend())), 0x113fdb5cu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

}  // namespace
}  // namespace dcformer
