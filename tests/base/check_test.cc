#include "dcformer/base/check.h"

#include <gtest/gtest.h>

namespace dcformer {
namespace {

TEST(Check, FailFormatsItsText) {
  try {
    fail("{}: expected {}, got {}", "file", 1, "two");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "file: expected 1, got two");
    return;
  }
  ADD_FAILURE();
}

TEST(Check, RequireThrowsUnlessTheConditionHolds) {
  EXPECT_NO_THROW(require(true, "x"));
  EXPECT_THROW(require(false, "x {}", 1), Error);
}

}  // namespace
}  // namespace dcformer
