#include "dcformer/base/random.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <vector>

namespace dcformer {
namespace {

using ::testing::ElementsAre;

// The known answers that come with the authors' own implementation (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(philox({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_THAT(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

// The bytes of initial weights and the order of data hang on this layout of counter and key.
TEST(Random, PlacesSeedStreamAndIndex) {
  const uint64_t index = 0x85a308d3243f6a88, stream = 0x0370734413198a2e, seed = 0x299f31d0a4093822;
  EXPECT_EQ(Random(seed, stream).bits(index), 0x94fdccebd16cfe09);
  EXPECT_EQ(Random(0, uint64_t{0}).bits(0), 0xe169c58d6627e8d5);
}

TEST(Random, NamesAreHashed) {
  // FNV-1a of "a", from its authors' table of test vectors.
  EXPECT_EQ(Random(1, "a").bits(3), Random(1, uint64_t{0xaf63dc4c8601ec8c}).bits(3));
  EXPECT_NE(Random(1, "a").bits(3), Random(1, "b").bits(3));
  EXPECT_NE(Random(1, "a").bits(3), Random(2, "a").bits(3));
}

TEST(Random, UniformNumbersFillTheInterval) {
  const Random random(11, "uniform");
  double sum = 0, squares = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.uniform(i);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    squares += value * value;
  }
  // Standard deviations of these means are 0.002.
  EXPECT_NEAR(sum / kCount, 1.0 / 2, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.01);
  EXPECT_EQ(random.uniform(4), static_cast<double>(random.bits(4) >> 11) * 0x1p-53);
}

TEST(Random, BelowIsEven) {
  const Random random(12, "below");
  std::vector<int> counts(7);
  for (int i = 0; i < 14000; ++i) {
    const uint64_t value = random.below(i, 7);
    ASSERT_LT(value, 7u);
    ++counts[value];
  }
  // 2000 expected, standard deviation 41.
  for (int count : counts) EXPECT_NEAR(count, 2000, 250);
  EXPECT_EQ(random.below(5, 1), 0u);
}

TEST(Random, NormalNumbersHaveTheirMoments) {
  const Random random(13, "normal");
  std::vector<float> values(100000);
  random.fill_normal(values, 0.5);
  double moments[5] = {};
  for (float value : values) {
    double power = 1;
    for (double& moment : moments) {
      moment += power / static_cast<double>(values.size());
      power *= value / 0.5;
    }
  }
  // Mean 0, variance 1, third moment 0, fourth 3; five standard deviations of each.
  EXPECT_NEAR(moments[1], 0, 5 * std::sqrt(1 / 1e5));
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2 / 1e5));
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15 / 1e5));
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96 / 1e5));
  // Φ(1) - Φ(-1) = 0.6827 of them within one deviation.
  int inside = 0;
  for (float value : values) inside += std::abs(value) < 0.5f ? 1 : 0;
  EXPECT_NEAR(inside / 1e5, 0.6827, 0.008);
}

TEST(Random, NormalNumbersDoNotDependOnTheCut) {
  const Random random(14, "cut");
  std::vector<float> whole(50), part(20);
  random.fill_normal(whole, 1);
  random.fill_normal(part, 1, 30);
  EXPECT_EQ(std::vector<float>(whole.begin() + 30, whole.end()), part);
  const std::set<float> different(whole.begin(), whole.end());
  EXPECT_EQ(different.size(), whole.size());
}

}  // namespace
}  // namespace dcformer
