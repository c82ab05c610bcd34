#include "tests/support/random_values.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dcformer::test {
namespace {

TEST(RandomValues, FollowTheSeed) {
  EXPECT_EQ(random_doubles(5, 7), random_doubles(5, 7));
  EXPECT_NE(random_doubles(5, 7), random_doubles(5, 8));
  EXPECT_NE(random_integers(9, 7, 100), random_integers(9, 8, 100));
}

TEST(RandomValues, FillTheirRange) {
  const std::vector<double> values = random_doubles(10000, 1, 2);
  double sum = 0;
  for (double value : values) sum += value;
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -2);
  EXPECT_LT(*std::min_element(values.begin(), values.end()), -1.9);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 2);
  EXPECT_GT(*std::max_element(values.begin(), values.end()), 1.9);
  // The mean of 10000 such values has a standard deviation of 0.012.
  EXPECT_NEAR(sum / 10000, 0, 0.06);
  const std::vector<int32_t> integers = random_integers(1000, 1, 3);
  for (int32_t value : {0, 1, 2})
    EXPECT_GT(std::count(integers.begin(), integers.end(), value), 250);
  EXPECT_EQ(*std::max_element(integers.begin(), integers.end()), 2);
}

TEST(RandomValues, RoundToFloat) {
  EXPECT_EQ(rounded_to_float({0.1}), std::vector<double>{double{0.1f}});
  EXPECT_EQ(random_floats(3, 5), to_floats(random_doubles(3, 5)));
}

}  // namespace
}  // namespace dcformer::test
