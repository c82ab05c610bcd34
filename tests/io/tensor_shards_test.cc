#include "dcformer/io/tensor_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "dcformer/base/file.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/io/tensor_folder.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using test::expect_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ShardIndex, GivesTheFileOfEachTensor) {
  const ShardIndex index = parse_shard_index(
      R"({"metadata":{"total_size":1e9},"weight_map":{"b":"2.bin","a":"1.bin","c":"1.bin"}})", "f");
  EXPECT_EQ(index.file_of.at("b"), "2.bin");
  EXPECT_THAT(index.files(), ElementsAre("1.bin", "2.bin"));
}

TEST(ShardIndex, RefusesWhatDoesNotHold) {
  const auto expect_refused = [](const std::string& text, const std::vector<std::string>& parts) {
    expect_error([&] { parse_shard_index(text, "f"); }, parts);
  };
  expect_refused("", {"f: not valid JSON"});
  expect_refused("[]", {"f: expected an object with 'weight_map'"});
  expect_refused("{}", {"f: expected an object with 'weight_map'"});
  expect_refused(R"({"weight_map":[]})", {"f: expected an object with 'weight_map'"});
  expect_refused(R"({"weight_map":{}})", {"f: weight_map names no tensors"});
  expect_refused(R"({"weight_map":{"a":1}})", {"weight_map 'a'", "expected the name of a file"});
  expect_refused(R"({"weight_map":{"a":"x","a":"y"}})", {"f: key 'a' occurs twice"});
  for (const char* name : {"", ".", "..", "/etc/passwd", "../x.bin", "a/b.bin", "a\\\\b.bin",
                           "..\\\\x.bin", "x\\u0000.bin"})
    expect_refused(std::string(R"({"weight_map":{"a":")") + name + "\"}}",
                   {"f: weight_map 'a'", "expected the plain name"});
  expect_refused("{\"weight_map\":" + std::string(5000, '['), {"nested deeper"});
}

class Shards : public ::testing::Test {
 protected:
  // A safetensors file of f32 scalars.
  void shard(const std::string& name, const std::vector<std::pair<std::string, float>>& values) {
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& [tensor, value] : values) {
      tensors.emplace_back(tensor, Tensor::empty(context_, DType::f32, {}));
      tensors.back().second.data<float>()[0] = value;
    }
    write_safetensors(folder_ / name, tensors);
  }
  void index(const std::string& map) {
    replace_file(index_, R"({"metadata":{},"weight_map":)" + map + "}");
  }
  void expect_refused(const std::vector<std::string>& parts) {
    expect_error([&] { open_shards(index_); }, parts);
  }

  Context context_{1};
  test::TemporaryFolder folder_;
  std::string index_ = folder_ / "model.safetensors.index.json";
};

TEST_F(Shards, AreReadAsOne) {
  shard("1.safetensors", {{"a", 1}, {"b", 2}});
  shard("2.safetensors", {{"c", 3}});
  index(R"({"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"})");
  const auto source = open_tensor_folder(folder_.path());
  EXPECT_EQ(source->where(), index_);
  ASSERT_EQ(source->tensors().size(), 3u);
  EXPECT_EQ(source->mapped("c").data<float>()[0], 3);
  EXPECT_EQ(source->at("b").file, folder_ / "1.safetensors");
  std::vector<float> value(1);
  source->read("b", 0, std::span(value));
  EXPECT_EQ(value[0], 2);
  EXPECT_TRUE(source->warnings().empty());
}

TEST_F(Shards, TensorsThatTheIndexLacksAreNamed) {
  shard("1.safetensors", {{"a", 1}, {"b", 2}, {"c", 3}});
  index(R"({"b":"1.safetensors"})");
  const auto source = open_shards(index_);
  EXPECT_EQ(source->tensors().size(), 1u);
  EXPECT_EQ(source->find("a"), nullptr);
  EXPECT_THAT(source->warnings(), ElementsAre(HasSubstr("2 tensors of its shards are not listed: "
                                                        "a, c")));
}

TEST_F(Shards, MustHoldWhatTheIndexSays) {
  index(R"({"a":"1.safetensors"})");
  expect_refused({index_, "shard '1.safetensors' is missing"});
  shard("1.safetensors", {{"b", 1}});
  expect_refused({index_, "tensor 'a' is not in its shard '1.safetensors'"});
  shard("2.safetensors", {{"a", 1}});
  index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  expect_refused({index_, "tensor 'a' is not in its shard '1.safetensors' but in"});
  shard("1.safetensors", {{"a", 1}, {"b", 1}});
  expect_refused({index_, "tensor 'a' is both in", "1.safetensors and in", "2.safetensors"});
  index(R"({"a":"1.npz"})");
  std::ofstream(folder_ / "1.npz") << "x";
  expect_refused({"1.npz: expected a file that ends in .safetensors, .bin or .pt"});
  std::ofstream(folder_ / "1.safetensors") << "short";
  index(R"({"a":"1.safetensors"})");
  expect_refused({folder_ / "1.safetensors", "at least 8"});
  std::filesystem::create_directory(folder_ / "d.safetensors");
  index(R"({"a":"d.safetensors"})");
  expect_refused({"d.safetensors", "not a regular file"});
}

TEST_F(Shards, OfAFolderTheFirstFormIsRead) {
  expect_error([&] { open_tensor_folder(folder_.path()); },
               {folder_.path(), "holds no tensors; looked for model.safetensors, ",
                "pytorch_model.bin.index.json"});
  expect_error([&] { open_tensor_folder(folder_ / "absent"); }, {"absent: is no folder"});
  shard("1.safetensors", {{"a", 1}});
  index(R"({"a":"1.safetensors"})");
  shard("model.safetensors", {{"b", 1}});
  EXPECT_NE(open_tensor_folder(folder_.path())->find("b"), nullptr);
  std::filesystem::remove(folder_ / "model.safetensors");
  std::ofstream(folder_ / "pytorch_model.bin") << "broken";
  EXPECT_NE(open_tensor_folder(folder_.path())->find("a"), nullptr);
  std::filesystem::remove(index_);
  expect_error([&] { open_tensor_folder(folder_.path()); }, {"pytorch_model.bin: expected a file"});
}

}  // namespace
}  // namespace dcformer
