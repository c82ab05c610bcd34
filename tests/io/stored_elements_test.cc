#include "dcformer/io/stored_elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/io/expect_error.h"

namespace dcformer {
namespace {

// Each element as its type stores it, at an odd address and `stride` apart.
template <typename T>
std::vector<std::byte> stored(const std::vector<T>& values, size_t stride) {
  std::vector<std::byte> bytes(1 + values.size() * stride * sizeof(T), std::byte{0x5a});
  for (size_t i = 0; i < values.size(); ++i)
    std::memcpy(bytes.data() + 1 + i * stride * sizeof(T), &values[i], sizeof(T));
  return bytes;
}

template <typename T>
void expect_read(const std::vector<T>& values, const std::vector<float>& expected) {
  for (const size_t stride : {1, 3}) {
    const std::vector<std::byte> bytes = stored(values, stride);
    std::vector<float> f32(values.size());
    const auto step = static_cast<int64_t>(stride);
    read_elements(dtype_of<T>(), bytes.data() + 1, step, std::span(f32));
    EXPECT_EQ(f32, expected) << name_of(dtype_of<T>());
    std::vector<BFloat16> bf16(values.size());
    read_elements(dtype_of<T>(), bytes.data() + 1, step, std::span(bf16));
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(bf16[i].bits, BFloat16(expected[i]).bits) << name_of(dtype_of<T>());
  }
}

TEST(StoredElements, EachTypeIsReadFromAnyPlace) {
  expect_read<float>({0.1f, -3, 1e-40f}, {0.1f, -3, 1e-40f});
  expect_read<double>({0.1, -3e300 * 0 - 3, 1e-320}, {0.1f, -3, 0});
  expect_read<BFloat16>({BFloat16(1.5f), BFloat16(-2e30f)},
                        {1.5f, static_cast<float>(BFloat16(-2e30f))});
  expect_read<Float16>({Float16{0x3c00}, Float16{0x8001}, Float16{0x7bff}},
                       {1, -std::ldexp(1.0f, -24), 65504});
  expect_read<int64_t>({1, -(int64_t{1} << 40), (int64_t{1} << 24) + 1},
                       {1, -std::ldexp(1.0f, 40), std::ldexp(1.0f, 24)});
  expect_read<int32_t>({7, INT32_MIN}, {7, -std::ldexp(1.0f, 31)});
  expect_read<int16_t>({7, -32768}, {7, -32768});
  expect_read<int8_t>({7, -128}, {7, -128});
  expect_read<uint8_t>({7, 255}, {7, 255});
}

TEST(StoredElements, ABooleanOfAnyByteIsANumber) {
  const std::byte bytes[] = {std::byte{0}, std::byte{1}, std::byte{0xff}};
  std::vector<float> values(3);
  read_elements(DType::boolean, bytes, 1, std::span(values));
  EXPECT_EQ(values, (std::vector<float>{0, 1, 255}));
}

TEST(StoredElements, BlocksHaveNoSeams) {
  std::vector<int32_t> values(5000);
  std::vector<float> expected(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    expected[i] = static_cast<float>(values[i] = static_cast<int32_t>(i));
  expect_read(values, expected);
}

TEST(StoredElements, TargetsAreF32OrBf16) {
  float value = 0;
  test::expect_error([&] { ElementTarget(DType::f16, &value, 1); }, {"f16", "f32 or bf16"});
}

TEST(StoredElements, FillsWithAValue) {
  std::vector<float> f32(3);
  fill_elements(2.5f, std::span(f32));
  EXPECT_EQ(f32, (std::vector<float>{2.5f, 2.5f, 2.5f}));
  std::vector<BFloat16> bf16(2);
  fill_elements(2.5f, std::span(bf16));
  EXPECT_EQ(static_cast<float>(bf16[1]), 2.5f);
}

TEST(StoredElements, StoresWithACountOfWhatBecameInfinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, 1e6f, -1e6f, infinity, std::numeric_limits<float>::max()};
  std::vector<std::byte> bytes(values.size() * 4);
  EXPECT_EQ(store_elements(values, DType::f32, bytes.data()), 0);
  EXPECT_EQ(std::memcmp(bytes.data(), values.data(), bytes.size()), 0);
  EXPECT_EQ(store_elements(values, DType::f16, bytes.data()), 3);
  // The largest f32 rounds up beyond bf16.
  EXPECT_EQ(store_elements(values, DType::bf16, bytes.data()), 1);
  test::expect_error([&] { store_elements(values, DType::i32, bytes.data()); }, {"i32"});
}

}  // namespace
}  // namespace dcformer
