#include "dcformer/tensor/dtype.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/reference/bfloat16.h"
#include "tests/support/random_values.h"

namespace dcformer {
namespace {

uint16_t bits_of(float value) { return BFloat16(value).bits; }
float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(DType, SizesNamesAndTypesAgree) {
  const auto expect = [](DType dtype, DType of_type, size_t size, const char* name) {
    EXPECT_EQ(dtype, of_type);
    EXPECT_EQ(size_of(dtype), size) << name;
    EXPECT_EQ(name_of(dtype), name);
  };
  expect(DType::f64, dtype_of<double>(), 8, "f64");
  expect(DType::f32, dtype_of<float>(), 4, "f32");
  expect(DType::f16, dtype_of<Float16>(), 2, "f16");
  expect(DType::bf16, dtype_of<BFloat16>(), 2, "bf16");
  expect(DType::i64, dtype_of<int64_t>(), 8, "i64");
  expect(DType::i32, dtype_of<int32_t>(), 4, "i32");
  expect(DType::i16, dtype_of<int16_t>(), 2, "i16");
  expect(DType::i8, dtype_of<int8_t>(), 1, "i8");
  expect(DType::u8, dtype_of<uint8_t>(), 1, "u8");
  expect(DType::boolean, dtype_of<bool>(), 1, "boolean");
  EXPECT_EQ(dtype_of<const float>(), DType::f32);
}

TEST(DType, VisitTakesComputeTypesOnly) {
  EXPECT_EQ(visit_dtype(DType::f32, "here", [](auto v) { return sizeof(v); }), 4u);
  EXPECT_EQ(visit_dtype(DType::bf16, "here", [](auto v) { return sizeof(v); }), 2u);
  for (DType dtype : {DType::f64, DType::f16, DType::i64, DType::i32, DType::i16, DType::i8,
                      DType::u8, DType::boolean}) {
    try {
      visit_dtype(dtype, "here", [](auto v) { return sizeof(v); });
      ADD_FAILURE() << name_of(dtype);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "here: expected f32 or bf16, got " + std::string(name_of(dtype)));
    }
  }
}

TEST(BFloat16, EveryValueSurvives) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    BFloat16 value;
    value.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(wide))));
    } else {
      ASSERT_EQ(BFloat16(wide).bits, bits);
    }
  }
}

TEST(BFloat16, RoundsTiesToEven) {
  EXPECT_EQ(bits_of(from_bits(0x3f800000)), 0x3f80);
  EXPECT_EQ(bits_of(from_bits(0x3f807fff)), 0x3f80);
  EXPECT_EQ(bits_of(from_bits(0x3f808000)), 0x3f80);
  EXPECT_EQ(bits_of(from_bits(0x3f808001)), 0x3f81);
  EXPECT_EQ(bits_of(from_bits(0x3f818000)), 0x3f82);
  EXPECT_EQ(bits_of(from_bits(0xbf818000)), 0xbf82);
  // A carry into the exponent.
  EXPECT_EQ(bits_of(from_bits(0x3fffffff)), 0x4000);
}

TEST(BFloat16, RoundsSubnormalNumbers) {
  EXPECT_EQ(bits_of(from_bits(0x00008000)), 0x0000);
  EXPECT_EQ(bits_of(from_bits(0x00008001)), 0x0001);
  EXPECT_EQ(bits_of(from_bits(0x00018000)), 0x0002);
  EXPECT_EQ(bits_of(from_bits(0x80000001)), 0x8000);
  EXPECT_EQ(bits_of(from_bits(0x007fffff)), 0x0080);
}

TEST(BFloat16, KeepsInfinityAndNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bits_of(kInfinity), 0x7f80);
  EXPECT_EQ(bits_of(-kInfinity), 0xff80);
  // The largest float is beyond the largest bf16 by more than half a step.
  EXPECT_EQ(bits_of(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bits_of(from_bits(0x7f7f7fff)), 0x7f7f);
  // A NaN whose payload is only in the half that is cut off, and one that rounding would overflow.
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(from_bits(bits))))) << bits;
    EXPECT_EQ(bits_of(from_bits(bits)) >> 15, bits >> 31);
    EXPECT_NE(bits_of(from_bits(bits)) & 0x40, 0) << "quiet";
  }
}

TEST(BFloat16, AgreesWithTheOracle) {
  for (double scale : {1e-38, 1e-3, 1.0, 1e30}) {
    for (float value : test::random_floats(2000, 3, scale))
      ASSERT_EQ(static_cast<float>(BFloat16(value)), reference::to_bfloat16(double{value}));
  }
}

// Half precision by its definition: (-1)^s · 2^(e-15) · 1.f, and 2^-14 · 0.f for e = 0.
TEST(Float16, AllValues) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(half);
    const bool negative = bits >= 32768;
    const int exponent = static_cast<int>(bits / 1024 % 32);
    const double fraction = bits % 1024 / 1024.0;
    ASSERT_EQ(std::signbit(value), negative) << bits;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      continue;
    }
    double expected =
        exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
    if (exponent == 31) expected = std::numeric_limits<double>::infinity();
    ASSERT_EQ(double{value}, negative ? -expected : expected) << bits;
  }
}

}  // namespace
}  // namespace dcformer
