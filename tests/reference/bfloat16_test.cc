#include "tests/reference/bfloat16.h"

#include <gtest/gtest.h>

namespace dcformer::reference {
namespace {

TEST(ReferenceBFloat16, RoundsToNearestEven) {
  // Neighbours at 1 are 2^-7 apart.
  EXPECT_EQ(to_bfloat16(1.0), 1.0);
  EXPECT_EQ(to_bfloat16(1 + 0x1p-8), 1.0);
  EXPECT_EQ(to_bfloat16(1 + 0x1.0001p-8), 1 + 0x1p-7);
  EXPECT_EQ(to_bfloat16(1 + 0x3p-8), 1 + 0x1p-6);
  EXPECT_EQ(to_bfloat16(-1 - 0x1p-8), -1.0);
  EXPECT_EQ(to_bfloat16(0x1.ffp0), 2.0);
  EXPECT_EQ(to_bfloat16(0.0), 0.0);
}

TEST(ReferenceBFloat16, KnowsSubnormalNumbers) {
  EXPECT_EQ(to_bfloat16(0x1p-133), 0x1p-133);
  EXPECT_EQ(to_bfloat16(0x1p-134), 0.0);
  EXPECT_EQ(to_bfloat16(0x1.8p-134), 0x1p-133);
  EXPECT_EQ(to_bfloat16(0x1.81p-127), 0x1.8p-127);
}

TEST(ReferenceBFloat16, RoundsEachOfAList) {
  EXPECT_EQ(to_bfloat16(std::vector<double>{1 + 0x1p-8, 3.0}), (std::vector<double>{1, 3}));
}

}  // namespace
}  // namespace dcformer::reference
