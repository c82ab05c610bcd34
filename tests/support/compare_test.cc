#include "tests/support/compare.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "dcformer/tensor/dtype.h"

namespace dcformer::test {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Each form with a tolerance wide enough that only its own rule can fail it.
std::vector<::testing::AssertionResult> every_form(const std::vector<double>& actual,
                                                   const std::vector<double>& expected) {
  return {all_close(actual, expected, 10, 10), norm_close(actual, expected, 10),
          max_close(actual, expected, 10), same_values(actual, expected)};
}

TEST(Compare, AllCloseHoldsAtTheBoundAndFailsBeyondIt) {
  const std::vector<double> expected{2, -4};
  EXPECT_TRUE(all_close(std::vector<double>{2.25, -4.5}, expected, 0.125, 0));
  EXPECT_FALSE(all_close(std::vector<double>{2.25, -4.5625}, expected, 0.125, 0));
  EXPECT_TRUE(all_close(std::vector<double>{2.5, -4.5}, expected, 0, 0.5));
  EXPECT_FALSE(all_close(std::vector<double>{1.25, -4}, expected, 0, 0.5));
  EXPECT_TRUE(all_close(std::vector<double>{2.75, -4}, expected, 0.125, 0.5));
}

TEST(Compare, AllCloseNamesTheWorstElement) {
  const auto result =
      all_close(std::vector<double>{1, 5, 103}, std::vector<double>{1, 2, 100}, 0.01, 0);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("2 of 3 values"));
  EXPECT_THAT(result.message(), HasSubstr("worst at [1]: got 5, expected 2"));
}

TEST(Compare, AllCloseWithZeroBoundNamesTheElement) {
  const auto result = all_close(std::vector<double>{0, 0, 1}, std::vector<double>{0, 0, 0}, 1, 0);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("worst at [2]"));
}

TEST(Compare, NormCloseHoldsAtTheBoundAndFailsBeyondIt) {
  const std::vector<double> expected{3, 4};
  EXPECT_TRUE(norm_close(std::vector<double>{3, 4.5}, expected, 0.1));
  EXPECT_FALSE(norm_close(std::vector<double>{3.5, 4.5}, expected, 0.1));
  EXPECT_TRUE(norm_close(std::vector<double>{0, 0}, std::vector<double>{0, 0}, 0.1));
  EXPECT_FALSE(norm_close(std::vector<double>{0, 1e-9}, std::vector<double>{0, 0}, 0.1));
}

TEST(Compare, MaxCloseHoldsAtTheBoundAndFailsBeyondIt) {
  const std::vector<double> expected{1, -8};
  EXPECT_TRUE(max_close(std::vector<double>{2, -7}, expected, 0.125));
  EXPECT_FALSE(max_close(std::vector<double>{2.25, -8}, expected, 0.125));
  EXPECT_TRUE(max_close(std::vector<double>{}, std::vector<double>{}, 0.125));
}

TEST(Compare, SameValuesAllowsNoDifference) {
  EXPECT_TRUE(same_values(std::vector<double>{1, 0.0}, std::vector<double>{1, -0.0}));
  EXPECT_FALSE(
      same_values(std::vector<double>{1, 2}, std::vector<double>{1, std::nextafter(2, 3)}));
}

TEST(Compare, NotFiniteNeverPasses) {
  for (double bad : {kNan, kInfinity, -kInfinity}) {
    for (const auto& result : every_form({1, bad}, {1, 2})) EXPECT_FALSE(result) << bad;
    for (const auto& result : every_form({1, 2}, {1, bad})) EXPECT_FALSE(result) << bad;
    for (const auto& result : every_form({1, bad}, {1, bad})) {
      EXPECT_FALSE(result) << bad;
      EXPECT_THAT(result.message(), HasSubstr("not finite at [1]"));
    }
  }
}

TEST(Compare, LengthsMustAgree) {
  for (const auto& result : every_form({1, 2}, {1, 2, 3})) {
    EXPECT_FALSE(result);
    EXPECT_THAT(result.message(), HasSubstr("2 values, expected 3"));
  }
}

TEST(Compare, TakesRangesOfAnyNumberType) {
  const std::vector<float> floats{0.5f, 2.f};
  EXPECT_TRUE(same_values(std::span<const float>(floats), std::vector<double>{0.5, 2}));
  EXPECT_TRUE(same_values(std::vector<BFloat16>{BFloat16(0.5f), BFloat16(2.f)}, floats));
  EXPECT_TRUE(same_values(std::vector<int32_t>{3}, std::vector<int64_t>{3}));
}

TEST(Compare, RelativeDistance) {
  EXPECT_DOUBLE_EQ(relative_distance(std::vector<double>{3, 5}, std::vector<double>{3, 4}), 0.2);
  EXPECT_TRUE(std::isnan(relative_distance(std::vector<double>{kNan}, std::vector<double>{1})));
}

}  // namespace
}  // namespace dcformer::test
