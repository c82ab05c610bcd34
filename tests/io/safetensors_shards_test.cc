#include "dcformer/io/safetensors_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dcformer/base/file.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/tensor_folder.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using test::expect_error;
using ::testing::UnorderedElementsAre;

class SafetensorsShards : public ::testing::Test {
 protected:
  Tensor floats(const std::vector<float>& values) {
    const Tensor tensor = Tensor::empty(context_, DType::f32, {std::ssize(values)});
    std::copy(values.begin(), values.end(), tensor.data<float>());
    return tensor;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename().string());
    return names;
  }
  // Tensors a, b, c … of f32 numbers, 1, 2, 3 … of them, all with the tensor's index as value.
  std::vector<PlannedTensor> plan(int n, DType dtype = DType::f32) {
    std::vector<PlannedTensor> plan;
    for (int i = 0; i < n; ++i)
      plan.push_back({std::string(1, static_cast<char>('a' + i)), dtype, {i + 1}});
    return plan;
  }
  TensorGiver giver() {
    return [this](size_t i) {
      given_.push_back(i);
      return floats(std::vector<float>(i + 1, static_cast<float>(i)));
    };
  }
  void expect_contents(int n) {
    const auto source = open_tensor_folder(folder_.path());
    ASSERT_EQ(std::ssize(source->tensors()), n);
    for (int i = 0; i < n; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      std::vector<float> read(static_cast<size_t>(i) + 1);
      source->read(name, 0, std::span(read));
      EXPECT_EQ(read, std::vector<float>(read.size(), static_cast<float>(i)));
    }
  }

  Context context_{1};
  test::TemporaryFolder folder_;
  std::vector<size_t> given_;
};

TEST_F(SafetensorsShards, OneFileWhereItIsEnough) {
  write_safetensors_shards(folder_.path(), plan(4), giver(), 40);
  EXPECT_THAT(names(), UnorderedElementsAre("model.safetensors"));
  EXPECT_EQ(SafetensorsFile::open(folder_ / "model.safetensors").metadata().at("format"), "pt");
  expect_contents(4);
  EXPECT_EQ(given_, (std::vector<size_t>{0, 1, 2, 3}));
}

TEST_F(SafetensorsShards, ShardsAreNoLargerThanAsked) {
  write_safetensors_shards(folder_.path(), plan(5), giver(), 16);
  // 4 and 8 bytes; 12; 16; 20 alone, though too large.
  EXPECT_THAT(names(), UnorderedElementsAre(
                           "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                           "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                           "model.safetensors.index.json"));
  EXPECT_EQ(SafetensorsFile::open(folder_ / "model-00001-of-00004.safetensors").entries().size(),
            2u);
  const nlohmann::json index = read_json_file(folder_ / "model.safetensors.index.json");
  EXPECT_EQ(index["metadata"]["total_size"], 60);
  EXPECT_EQ(index["weight_map"]["e"], "model-00004-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"].size(), 5u);
  expect_contents(5);
  EXPECT_EQ(given_, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST_F(SafetensorsShards, TheSameTensorsGiveTheSameBytes) {
  const test::TemporaryFolder other;
  write_safetensors_shards(folder_.path(), plan(3), giver(), 12);
  write_safetensors_shards(other.path(), plan(3), giver(), 12);
  for (const std::string& name : names())
    EXPECT_EQ(read_file(folder_ / name), read_file(other / name)) << name;
}

TEST_F(SafetensorsShards, AFileInTheWayOfShardsIsAnError) {
  write_safetensors_shards(folder_.path(), plan(2), giver(), 100);
  expect_error([&] { write_safetensors_shards(folder_.path(), plan(2), giver(), 4); },
               {"model.safetensors: stands in the way"});
}

TEST_F(SafetensorsShards, ValuesAreRounded) {
  const std::string path = folder_ / "t.safetensors";
  // 65520 is the first that f16 has no room for.
  const Tensor values = floats({1.0009765625f + 1e-4f, 65519, 65520, -1e9f});
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const WriteSummary summary =
        write_safetensors(path, {{"x", dtype, {4}}}, [&](size_t) { return values; }, {});
    EXPECT_EQ(summary.n_overflow, dtype == DType::f16 ? 2 : 0);
    EXPECT_EQ(summary.overflow_in, dtype == DType::f16 ? "x" : "");
    const SafetensorsFile file = SafetensorsFile::open(path);
    EXPECT_EQ(file.find("x")->dtype, dtype);
    if (dtype == DType::f16) {
      EXPECT_EQ(file.tensor("x").data<Float16>()[0].bits, 0x3c01);
      EXPECT_EQ(file.tensor("x").data<Float16>()[1].bits, 0x7bff);
      EXPECT_EQ(file.tensor("x").data<Float16>()[2].bits, 0x7c00);
    }
    if (dtype == DType::bf16) {
      EXPECT_EQ(file.tensor("x").data<BFloat16>()[1].bits, BFloat16(65519.0f).bits);
    }
  }
}

// More than the writer rounds at once, and from each type to each.
TEST_F(SafetensorsShards, TypesGoIntoEachOther) {
  std::vector<float> values(150'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 256);
  const std::string path = folder_ / "t.safetensors";
  Tensor given = floats(values);
  for (const DType dtype : {DType::bf16, DType::f16, DType::bf16, DType::f32, DType::f16}) {
    write_safetensors(path, {{"x", dtype, given.shape()}}, [&](size_t) { return given; }, {});
    given = SafetensorsFile::open(path).tensor("x");
    std::vector<float> read(values.size());
    read_elements(dtype, static_cast<const std::byte*>(given.raw()), 1, std::span(read));
    EXPECT_EQ(read, values);
  }
}

TEST_F(SafetensorsShards, WhatDoesNotFitItsPlanIsAnError) {
  const std::string path = folder_ / "t.safetensors";
  const Tensor two = floats({1, 2});
  const auto write = [&](const PlannedTensor& planned, const Tensor& tensor) {
    write_safetensors(path, {planned}, [&](size_t) { return tensor; }, {});
  };
  expect_error(
      [&] {
        write({"x", DType::f32, {3}}, two);
      },
      {path, "tensor 'x' has shape [2], expected [3]"});
  expect_error([&] { write({"x", DType::f32, {}}, Tensor()); }, {path, "tensor 'x'"});
  expect_error(
      [&] {
        write({"x", DType::i32, {2}}, two);
      },
      {path, "tensor 'x' is f32, expected i32"});
  expect_error([&] { write({"__metadata__", DType::f32, {2}}, two); }, {path, "'__metadata__'"});
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(names().empty());
}

TEST_F(SafetensorsShards, TooLittleSpaceIsSaidBeforeTheFirstByte) {
  const std::vector<PlannedTensor> large = {{"x", DType::f32, {int64_t{1} << 60}}};
  expect_error([&] { write_safetensors_shards(folder_.path(), large, giver(), 1 << 30); },
               {"model.safetensors: takes 4611686018427387904 bytes, and the disk has"});
  EXPECT_TRUE(given_.empty());
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace dcformer
