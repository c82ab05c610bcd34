#include "dcformer/tensor/shape.h"

#include <gmock/gmock.h>

#include <vector>

#include "dcformer/base/error.h"

namespace dcformer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Shape, KnowsItsExtents) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_THAT(shape.dims(), ElementsAre(2, 3, 4));
  EXPECT_EQ(to_string(shape), "[2,3,4]");
}

TEST(Shape, WithoutDimensionsIsOneElement) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(to_string(Shape()), "[]");
}

TEST(Shape, ComparesAllExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
  EXPECT_FALSE(Shape{} == Shape{1});
}

TEST(Shape, MayBeEmpty) {
  EXPECT_EQ((Shape{3, 0, 5}).numel(), 0);
  // Nothing overflows when there are no elements.
  constexpr int64_t kLarge = int64_t{1} << 40;
  EXPECT_EQ((Shape{kLarge, kLarge, 0}).numel(), 0);
}

TEST(Shape, RefusesWhatDoesNotFit) {
  constexpr int64_t kLargest = int64_t{1} << 62;
  EXPECT_EQ((Shape{kLargest}).numel(), kLargest);
  EXPECT_EQ((Shape{int64_t{1} << 31, int64_t{1} << 31}).numel(), kLargest);
  EXPECT_THROW((Shape{kLargest, 2}), Error);
  EXPECT_THROW((Shape{kLargest + 1}), Error);
  EXPECT_THROW((Shape{INT64_MAX, INT64_MAX}), Error);
  // A product that wraps around to a small number.
  EXPECT_THROW((Shape{int64_t{1} << 32, int64_t{1} << 32, 3}), Error);
  try {
    Shape shape{2, -1};
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[2,-1] has a negative dimension"));
  }
}

TEST(Shape, HasAtMostEightDimensions) {
  const std::vector<int64_t> eight(8, 2), nine(9, 1);
  EXPECT_EQ(Shape(std::span<const int64_t>(eight)).numel(), 256);
  EXPECT_THROW(Shape{std::span<const int64_t>(nine)}, Error);
}

TEST(Shape, HasNoOtherDimensions) {
  const Shape shape{2, 3};
  EXPECT_THROW(shape[2], Error);
  EXPECT_THROW(shape[-3], Error);
}

}  // namespace
}  // namespace dcformer
