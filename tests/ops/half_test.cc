#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "dcformer/ops/half_kernels.h"

namespace dcformer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value of a finite pattern by its definition.
double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_nan(uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }

uint16_t rounded(float value) {
  Float16 half{};
  round_to_f16(&value, &half, 1);
  return half.bits;
}

TEST(Half, EveryPatternWidensExactly) {
  std::vector<Float16> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<uint16_t>(i);
  std::vector<float> values(halves.size());
  widen_f16(halves.data(), values.data(), std::ssize(halves));
  for (size_t i = 0; i < halves.size(); ++i) {
    const auto bits = static_cast<uint16_t>(i);
    if (is_nan(bits)) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
    } else if ((bits & 0x7fff) == 0x7c00) {
      EXPECT_EQ(values[i], bits == 0x7c00 ? kInfinity : -kInfinity);
    } else {
      EXPECT_EQ(values[i], half_value(bits)) << i;
      EXPECT_EQ(std::signbit(values[i]), (bits & 0x8000) != 0) << i;
    }
  }
  // Widened and rounded, each comes back.
  std::vector<Float16> back(halves.size());
  EXPECT_EQ(round_to_f16(values.data(), back.data(), std::ssize(values)), 0);
  for (size_t i = 0; i < halves.size(); ++i) {
    if (is_nan(halves[i].bits)) {
      EXPECT_TRUE(is_nan(back[i].bits)) << i;
    } else {
      EXPECT_EQ(back[i].bits, halves[i].bits);
    }
  }
}

// Between each two neighbours: what lies at the middle goes to the even one, all else to the
// nearer.
TEST(Half, RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<float>(half_value(bits));
    const auto high = static_cast<float>(half_value(static_cast<uint16_t>(bits + 1)));
    const float middle = (low + high) / 2;
    const auto even = static_cast<uint16_t>(bits + (bits & 1));
    ASSERT_EQ(rounded(middle), even) << bits;
    ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(rounded(std::nextafter(middle, kInfinity)), bits + 1);
    ASSERT_EQ(rounded(-middle), even | 0x8000);
  }
  EXPECT_EQ(rounded(1e-30f), 0);
  EXPECT_EQ(rounded(-1e-30f), 0x8000);
}

TEST(Half, CountsWhatBecomesInfinite) {
  const std::vector<float> values = {65504,      65519.996f,    65520, -65520, 1e30f, kInfinity,
                                     -kInfinity, std::nanf(""), 0,     3,      70000};
  std::vector<Float16> halves(values.size());
  EXPECT_EQ(round_to_f16(values.data(), halves.data(), std::ssize(values)), 4);
  EXPECT_EQ(halves[0].bits, 0x7bff);
  EXPECT_EQ(halves[1].bits, 0x7bff);
  EXPECT_EQ(halves[2].bits, 0x7c00);
  EXPECT_EQ(halves[3].bits, 0xfc00);
  EXPECT_EQ(halves[5].bits, 0x7c00);
  EXPECT_TRUE(is_nan(halves[7].bits));
}

TEST(Half, AnyLengthTouchesNothingBeyond) {
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<Float16> halves(static_cast<size_t>(n) + 1, Float16{0x1234});
    std::vector<float> values(static_cast<size_t>(n) + 1, 7);
    for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i);
    round_to_f16(values.data(), halves.data(), n);
    EXPECT_EQ(halves.back().bits, 0x1234);
    std::vector<float> back(static_cast<size_t>(n) + 1, -1);
    widen_f16(halves.data(), back.data(), n);
    EXPECT_EQ(back.back(), -1);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(back[static_cast<size_t>(i)], static_cast<float>(i));
  }
}

}  // namespace
}  // namespace dcformer
