#include "dcformer/io/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "dcformer/base/file.h"
#include "dcformer/io/json_file.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using test::expect_error;

// The bytes of a file: the header's length, the header, the data.
std::string file_bytes(const std::string& header, size_t n_data) {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  bytes += header;
  for (size_t i = 0; i < n_data; ++i) bytes += static_cast<char>(i);
  return bytes;
}

// In memory of exactly that size: a sanitizer sees a read beyond it.
SafetensorsFile parse_bytes(const std::string& bytes) {
  const std::shared_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return SafetensorsFile::parse({copy, copy.get()}, bytes.size(), "f");
}

SafetensorsFile parse(const std::string& header, size_t n_data) {
  return parse_bytes(file_bytes(header, n_data));
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"t":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                     offsets);
}

void expect_refused(const std::string& header, size_t n_data,
                    const std::vector<std::string>& parts) {
  expect_error([&] { parse(header, n_data); }, parts);
}

TEST(Safetensors, ReadsEntriesInTheOrderOfTheirData) {
  const SafetensorsFile file =
      parse(R"({"b":{"dtype":"U8","shape":[2,1],"data_offsets":[8,10]},"__metadata__":{"k":"v"},)"
            R"("a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},)"
            R"("none":{"dtype":"F64","shape":[3,0],"data_offsets":[10,10]},)"
            R"("one":{"dtype":"I8","shape":[],"data_offsets":[10,11]}})",
            11);
  ASSERT_EQ(file.entries().size(), 4u);
  EXPECT_EQ(file.entries()[0].name, "a");
  EXPECT_EQ(file.entries()[1].name, "b");
  EXPECT_EQ(file.entries()[2].name, "none");
  EXPECT_EQ(file.entries()[3].name, "one");
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_EQ(file.tensor("b").shape(), (Shape{2, 1}));
  EXPECT_EQ(file.tensor("b").data<uint8_t>()[1], 9);
  EXPECT_EQ(file.tensor("a").data<int32_t>()[1], 0x07060504);
  EXPECT_EQ(file.tensor("one").data<int8_t>()[0], 10);
  EXPECT_EQ(file.tensor("none").numel(), 0);
  expect_error([&] { file.tensor("absent"); }, {"f: no tensor 'absent'"});
}

TEST(Safetensors, KnowsTheTypes) {
  const std::pair<const char*, DType> types[] = {
      {"F64", DType::f64}, {"F32", DType::f32},     {"F16", DType::f16}, {"BF16", DType::bf16},
      {"I64", DType::i64}, {"I32", DType::i32},     {"I16", DType::i16}, {"I8", DType::i8},
      {"U8", DType::u8},   {"BOOL", DType::boolean}};
  for (const auto& [name, dtype] : types) {
    const size_t size = 3 * size_of(dtype);
    const auto file =
        parse(entry(fmt::format("\"{}\"", name), "[3]", fmt::format("[0,{}]", size)), size);
    EXPECT_EQ(file.entries()[0].dtype, dtype);
  }
  expect_refused(entry("\"F8_E4M3\"", "[1]", "[0,1]"), 1, {"f: tensor 't'", "'F8_E4M3'"});
  expect_refused(entry("\"f32\"", "[1]", "[0,4]"), 4, {"f: tensor 't'", "'f32'"});
  expect_refused(entry("7", "[1]", "[0,4]"), 4, {"f: tensor 't'", "dtype"});
}

TEST(Safetensors, CopiesDataThatIsNotAligned) {
  // A header of odd length puts all data at odd places.
  std::string header = entry("\"F32\"", "[2]", "[0,8]");
  if (header.size() % 2 == 0) header += ' ';
  const SafetensorsFile file = parse(header, 8);
  const Tensor tensor = file.tensor("t");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.raw()) % alignof(float), 0u);
  EXPECT_EQ(std::memcmp(tensor.raw(), "\0\1\2\3\4\5\6\7", 8), 0);
}

TEST(Safetensors, ATensorOutlivesItsFile) {
  Tensor tensor;
  { tensor = parse(entry("\"U8\"", "[4]", "[0,4]"), 4).tensor("t"); }
  EXPECT_EQ(tensor.data<uint8_t>()[3], 3);
}

TEST(Safetensors, RefusesLengthsBeyondTheFile) {
  for (const size_t n : {0, 1, 7})
    expect_error([&] { parse_bytes(std::string(n, '\0')); }, {"f: ", "at least 8"});
  expect_error([&] { parse_bytes(std::string(8, '\0')); }, {"f: header: not valid JSON"});
  const std::string whole = file_bytes(entry("\"U8\"", "[4]", "[0,4]"), 4);
  EXPECT_NO_THROW(parse_bytes(whole));
  for (size_t n = 8; n < whole.size(); ++n)
    expect_error(
        [&] { parse_bytes(whole.substr(0, n)); },
        {"f: ", n < whole.size() - 4 ? "header claims" : "tensor 't': data_offsets [0,4]"});
  for (const uint64_t claim : {uint64_t{1} << 20, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 7}) {
    std::string broken = whole;
    std::memcpy(broken.data(), &claim, 8);
    expect_error([&] { parse_bytes(broken); }, {"f: its header claims " + std::to_string(claim)});
  }
}

TEST(Safetensors, RefusesOffsetsThatDoNotHold) {
  expect_refused(entry("\"U8\"", "[4]", "[0,5]"), 4,
                 {"tensor 't'", "[0,5] lie outside", "4 bytes"});
  expect_refused(entry("\"U8\"", "[4]", "[4,8]"), 7, {"tensor 't'", "[4,8] lie outside"});
  expect_refused(entry("\"U8\"", "[4]", "[4,0]"), 8, {"tensor 't'", "[4,0]"});
  expect_refused(entry("\"U8\"", "[0]", "[9,9]"), 8, {"tensor 't'", "[9,9] lie outside"});
  expect_refused(entry("\"U8\"", "[4]", "[-4,0]"), 8, {"tensor 't'", "-4"});
  expect_refused(entry("\"U8\"", "[4]", "[0,4.0]"), 8, {"tensor 't'", "4.0"});
  expect_refused(entry("\"U8\"", "[4]", "[0]"), 8, {"tensor 't'", "two data_offsets"});
  expect_refused(entry("\"U8\"", "[4]", "[0,4,8]"), 8, {"tensor 't'", "two data_offsets"});
  expect_refused(entry("\"U8\"", "[4]", "{}"), 8, {"tensor 't'", "two data_offsets"});
  expect_refused(entry("\"U8\"", "[4]", "[18446744073709551612,18446744073709551615]"), 8,
                 {"tensor 't'", "18446744073709551612"});
}

TEST(Safetensors, RefusesShapesThatDoNotHold) {
  expect_refused(entry("\"F32\"", "[2]", "[0,7]"), 8, {"tensor 't'", "7 bytes", "[2] of f32"});
  expect_refused(entry("\"F32\"", "[2]", "[0,9]"), 9, {"tensor 't'", "9 bytes", "[2] of f32"});
  expect_refused(entry("\"F32\"", "[3]", "[0,8]"), 8, {"tensor 't'", "8 bytes", "[3] of f32"});
  expect_refused(entry("\"F32\"", "[0]", "[0,8]"), 8, {"tensor 't'", "8 bytes", "[0] of f32"});
  expect_refused(entry("\"F32\"", "[]", "[0,8]"), 8, {"tensor 't'", "8 bytes", "[] of f32"});
  expect_refused(entry("\"F32\"", "[-2]", "[0,8]"), 8, {"tensor 't'", "-2"});
  expect_refused(entry("\"F32\"", "[2.0]", "[0,8]"), 8, {"tensor 't'", "2.0"});
  expect_refused(entry("\"F32\"", "2", "[0,8]"), 8, {"tensor 't'", "shape"});
  expect_refused(entry("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, {"tensor 't'", "8 dim"});
  // Products that come out right, or as 0, modulo 2^64.
  expect_refused(entry("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 8, {"tensor 't'", "large"});
  expect_refused(entry("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 8, {"tensor 't'", "large"});
  expect_refused(entry("\"U8\"", "[18446744073709551615]", "[0,8]"), 8, {"tensor 't'"});
  // Too many elements for the size to be computed as numel · size.
  expect_refused(entry("\"F64\"", "[2305843009213693953]", "[0,8]"), 8, {"tensor 't'", "8 bytes"});
}

TEST(Safetensors, RefusesOverlaps) {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  EXPECT_NO_THROW(parse(two("[4,8]", "[0,4]"), 8));
  EXPECT_NO_THROW(parse(two("[0,4]", "[6,10]"), 10));
  expect_refused(two("[0,4]", "[3,7]"), 8, {"f: tensors 'a' and 'b' overlap"});
  expect_refused(two("[3,7]", "[0,4]"), 8, {"f: tensors 'b' and 'a' overlap"});
  expect_refused(two("[0,4]", "[0,4]"), 8, {"overlap"});
}

TEST(Safetensors, RefusesHeadersThatAreNone) {
  expect_refused("[]", 0, {"f: header: expected a JSON object"});
  expect_refused("{", 0, {"f: header: not valid JSON"});
  expect_refused(R"({"t":1})", 0, {"f: tensor 't'", "object"});
  expect_refused(R"({"t":{"dtype":"U8","shape":[0]}})", 0, {"f: tensor 't'", "data_offsets"});
  expect_refused(R"({"t":{"shape":[0],"data_offsets":[0,0]}})", 0, {"f: tensor 't'", "dtype"});
  expect_refused(R"({"t":{"dtype":"U8","data_offsets":[0,0]}})", 0, {"f: tensor 't'", "shape"});
  expect_refused(R"({"__metadata__":[]})", 0, {"f: ", "__metadata__"});
  expect_refused(R"({"__metadata__":{"k":1}})", 0, {"f: ", "__metadata__", "'k'"});
  const std::string t = R"("t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  expect_refused("{" + t + "," + t + "}", 0, {"f: header: key 't' occurs twice"});
  expect_refused("{\"t\":" + std::string(5000, '['), 0, {"f: header: nested deeper than 64"});
}

class SafetensorsFiles : public ::testing::Test {
 protected:
  Tensor ids(DType dtype, const Shape& shape) {
    const Tensor tensor = Tensor::empty(context_, dtype, shape);
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      if (dtype == DType::i32) tensor.data<int32_t>()[i] = static_cast<int32_t>(10 * i);
      if (dtype == DType::i64) tensor.data<int64_t>()[i] = 10 * i;
    }
    return tensor;
  }
  Context context_{1};
  test::TemporaryFolder folder_;
};

TEST_F(SafetensorsFiles, WhatIsWrittenComesBack) {
  const Tensor odd = Tensor::zeros(context_, DType::u8, {3});
  odd.data<uint8_t>()[2] = 7;
  const Tensor floats = Tensor::zeros(context_, DType::f32, {2, 2});
  std::iota(floats.data<float>(), floats.data<float>() + 4, 0.5f);
  const Tensor none = Tensor::empty(context_, DType::f32, {0, 4});
  const std::string path = folder_ / "w.safetensors";
  write_safetensors(path, {{"odd", odd}, {"floats", floats}, {"none", none}}, {{"format", "pt"}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  ASSERT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensor("odd").data<uint8_t>()[2], 7);
  EXPECT_THAT(file.tensor("floats").span<float>(), ::testing::ElementsAre(0.5, 1.5, 2.5, 3.5));
  EXPECT_EQ(file.tensor("none").shape(), (Shape{0, 4}));
  // In the given order, the data at a multiple of 8, the last byte the file's last.
  EXPECT_EQ(file.find("odd")->begin, 0u);
  EXPECT_EQ(file.find("floats")->begin, 3u);
  const std::string bytes = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(bytes.size(), 8 + header + 3 + 16);
}

TEST_F(SafetensorsFiles, TheSameTensorsGiveTheSameBytes) {
  const std::vector<std::pair<std::string, Tensor>> tensors = {{"b", ids(DType::i32, {2, 3})},
                                                               {"a", ids(DType::i64, {2})}};
  write_safetensors(folder_ / "1", tensors, {{"y", "1"}, {"x", "2"}});
  write_safetensors(folder_ / "2", tensors, {{"x", "2"}, {"y", "1"}});
  EXPECT_EQ(read_file(folder_ / "1"), read_file(folder_ / "2"));
  expect_error(
      [&] {
        write_safetensors(folder_ / "3", {tensors[0], tensors[0]});
      },
      {folder_ / "3", "'b' is given twice"});
  expect_error([&] { write_safetensors(folder_ / "absent/x", tensors); }, {folder_ / "absent/x"});
}

TEST_F(SafetensorsFiles, OpeningNamesTheFile) {
  for (const std::string& path : {folder_ / "absent", folder_.path()})
    expect_error([&] { SafetensorsFile::open(path); }, {path + ": "});
  const std::string empty = folder_ / "empty.safetensors";
  std::ofstream(empty).close();
  expect_error([&] { SafetensorsFile::open(empty); }, {empty + ": ", "at least 8"});
}

TEST_F(SafetensorsFiles, ReferencesNameFileAndTensor) {
  EXPECT_EQ(parse_tensor_reference("a/b.safetensors").path, "a/b.safetensors");
  EXPECT_EQ(parse_tensor_reference("a/b.safetensors").name, std::nullopt);
  EXPECT_EQ(parse_tensor_reference("a.safetensors:x.y:z").path, "a.safetensors");
  EXPECT_EQ(parse_tensor_reference("a.safetensors:x.y:z").name, "x.y:z");
  EXPECT_EQ(parse_tensor_reference("c:/a").path, "c:/a");

  const std::string path = folder_ / "t.safetensors";
  write_safetensors(path, {{"a", ids(DType::i32, {1})}, {"b", ids(DType::i32, {2})}});
  EXPECT_EQ(read_tensor({path, "b"}, "a").numel(), 2);
  EXPECT_EQ(read_tensor({path, std::nullopt}, "a").numel(), 1);
  expect_error(
      [&] {
        read_tensor({path, std::nullopt}, "c");
      },
      {path, "2 tensors", "none is 'c'", "(a, b)"});
  expect_error([&] { read_tensor({path, "c"}, "a"); }, {path, "no tensor 'c'"});
  write_safetensors(path, {{"only", ids(DType::i32, {3})}});
  EXPECT_EQ(read_tensor({path, std::nullopt}, "c").numel(), 3);
}

TEST_F(SafetensorsFiles, IdsAreRowsOfTheLastAxis) {
  for (const DType dtype : {DType::i32, DType::i64}) {
    const IdRows rows = id_rows(ids(dtype, {2, 3, 2}), "f");
    EXPECT_EQ(rows.n_row, 6);
    EXPECT_EQ(rows.length, 2);
    EXPECT_THAT(rows.ids, ::testing::ElementsAre(0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110));
  }
  EXPECT_EQ(id_rows(ids(DType::i64, {4}), "f").n_row, 1);
  EXPECT_EQ(id_rows(ids(DType::i64, {0, 4}), "f").n_row, 0);
  expect_error([&] { id_rows(ids(DType::f32, {2}), "f"); }, {"f: ids are f32"});
  expect_error([&] { id_rows(ids(DType::i32, {}), "f"); }, {"f: ", "[]"});
  expect_error([&] { id_rows(ids(DType::i32, {3, 0}), "f"); }, {"f: ", "[3,0]"});
  for (const int64_t large : {int64_t{1} << 31, -(int64_t{1} << 31) - 1, INT64_MIN}) {
    const Tensor tensor = ids(DType::i64, {2, 2});
    tensor.data<int64_t>()[3] = large;
    expect_error([&] { id_rows(tensor, "f"); }, {"f: id " + std::to_string(large), "row 1"});
  }
}

}  // namespace
}  // namespace dcformer
