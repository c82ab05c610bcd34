// One model in each container (tests/golden/README.md): the tensors of `dcformer-window`, rounded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "dcformer/io/tensor_folder.h"
#include "tests/support/golden.h"

namespace dcformer {
namespace {

// The nearest number (of two, the even one) with `digits` binary digits, of which the last is worth
// at least 2^least.
double round_to(double value, int digits, int least) {
  if (value == 0) return value;
  const int exponent = std::max(std::ilogb(value) - digits + 1, least);
  return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

double round_to(double value, DType dtype) {
  if (dtype == DType::f16) return round_to(value, 11, -24);
  if (dtype == DType::bf16) return round_to(value, 8, -133);
  return value;
}

struct ContainerCase {
  const char* folder;
  DType dtype;
  /// Holds the merged copies and buffers of the published code, 5 or more a layer, as well.
  bool has_buffers;
};

class Containers : public ::testing::TestWithParam<ContainerCase> {
 protected:
  std::unique_ptr<TensorSource> open() const {
    return open_tensor_folder(test::golden_path(std::string("containers/") + GetParam().folder));
  }
  test::Tensors original() const {
    return test::read_tensors(test::golden_path("dcformer-window/model.safetensors"));
  }
};

TEST_P(Containers, HoldTheRoundedTensors) {
  const auto source = open();
  const test::Tensors expected = original();
  EXPECT_EQ(source->warnings(), std::vector<std::string>());
  for (const auto& [name, values] : expected) {
    const StoredTensor& tensor = source->at(name);
    EXPECT_EQ(tensor.dtype, GetParam().dtype) << name;
    ASSERT_EQ(tensor.shape.numel(), std::ssize(values)) << name;
    std::vector<float> read(values.size());
    source->read(name, 0, std::span(read));
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(read[i], round_to(values[i], GetParam().dtype)) << name << " " << i;
  }
  if (!GetParam().has_buffers) {
    EXPECT_EQ(source->tensors().size(), expected.size());
  } else {
    for (const char* name : {"dw_m", "qkw_m", "pre_proj.w", "post_proj.w"})
      EXPECT_NE(source->find(std::string("layers.2.attention.dyn_w_proj.") + name), nullptr);
  }
}

// Any range, in both types, and slices are parts of the whole.
TEST_P(Containers, RangesAndSlicesAreParts) {
  const auto source = open();
  const std::string name = "layers.1.attention.dyn_w_proj.qkw";
  const Shape shape = source->at(name).shape;
  ASSERT_EQ(shape, (Shape{1, 4, 16, 4, 4}));
  std::vector<float> whole(1024);
  source->read(name, 0, std::span(whole));
  for (const int64_t begin : {0, 1, 17, 1000})
    for (const int64_t n : {0, 1, 23, 24}) {
      std::vector<float> part(static_cast<size_t>(n));
      source->read(name, begin, std::span(part));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin << " " << n;
      std::vector<BFloat16> bf16(static_cast<size_t>(n));
      source->read(name, begin, std::span(bf16));
      for (size_t i = 0; i < bf16.size(); ++i)
        EXPECT_EQ(bf16[i].bits, BFloat16(whole[static_cast<size_t>(begin) + i]).bits);
    }
  std::vector<float> slice(64);
  source->read_slice(name, 2, 5, std::span(slice));
  for (size_t i = 0; i < slice.size(); ++i)
    EXPECT_EQ(slice[i], whole[i / 16 * 256 + 5 * 16 + i % 16]) << i;
}

TEST_P(Containers, BytesAreThoseOfTheFile) {
  const auto source = open();
  for (const StoredTensor& tensor : source->tensors()) {
    const auto bytes = source->bytes(tensor.name);
    ASSERT_TRUE(bytes.has_value()) << tensor.name;
    EXPECT_EQ(bytes->size(), stored_bytes(tensor));
    std::vector<float> read(static_cast<size_t>(tensor.shape.numel()));
    source->read(tensor.name, 0, std::span(read));
    std::vector<float> converted(read.size());
    read_elements(tensor.dtype, bytes->data(), 1, std::span(converted));
    EXPECT_THAT(converted, ::testing::Pointwise(::testing::Eq(), read)) << tensor.name;
    const Tensor mapped = source->mapped(tensor.name);
    if (!mapped.defined()) continue;
    EXPECT_EQ(mapped.raw(), bytes->data());
    EXPECT_EQ(mapped.shape(), tensor.shape);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Containers,
                         ::testing::Values(ContainerCase{"bin-f16", DType::f16, true},
                                           ContainerCase{"bin-bf16-shards", DType::bf16, true},
                                           ContainerCase{"bin-f32-legacy", DType::f32, true},
                                           ContainerCase{"safetensors-bf16-shards", DType::bf16,
                                                         false}),
                         [](const auto& info) { return test::test_name(info.param.folder); });

}  // namespace
}  // namespace dcformer
