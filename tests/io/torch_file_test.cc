#include "dcformer/io/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "dcformer/io/tensor_shards.h"
#include "tests/io/expect_error.h"
#include "tests/io/torch_bytes.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using test::expect_error;
using test::le;
using test::parse_torch;
using test::pickled_dict;
using test::pickled_global;
using test::pickled_int;
using test::pickled_ints;
using test::pickled_storage;
using test::pickled_tensor;
using test::pickled_tuple;
using test::torch_legacy;
using test::torch_zip;
using ::testing::ElementsAre;

using Entries = std::vector<std::pair<std::string, std::string>>;

// f32 elements 0, 1, 2, …
std::string counting(int n) {
  std::string bytes;
  for (int i = 0; i < n; ++i) bytes += le(static_cast<float>(i));
  return bytes;
}
std::string legacy_data(int n) { return le(int64_t{n}) + counting(n); }

std::string floats(int64_t n) { return pickled_storage("FloatStorage", "0", n); }

std::vector<float> values(const TensorSource& source, const std::string& name) {
  std::vector<float> read(static_cast<size_t>(source.at(name).shape.numel()));
  source.read(name, 0, std::span(read));
  return read;
}

void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) {
  expect_error([&] { parse_torch(bytes); }, parts);
}
// Of one tensor "t" over six f32 elements, in either form.
void expect_tensor_refused(const std::string& tensor, const std::vector<std::string>& parts) {
  expect_refused(torch_zip(pickled_dict({{"t", tensor}}), {{"0", counting(6)}}), parts);
  expect_refused(torch_legacy(pickled_dict({{"t", tensor}}), {{"0", legacy_data(6)}}), parts);
}

// Both forms of a dict of tensors over one storage "0" of counting numbers.
std::vector<std::unique_ptr<TensorSource>> both_forms(const Entries& entries, int n) {
  std::vector<std::unique_ptr<TensorSource>> sources;
  sources.push_back(parse_torch(torch_zip(pickled_dict(entries), {{"0", counting(n)}})));
  sources.push_back(parse_torch(torch_legacy(pickled_dict(entries), {{"0", legacy_data(n)}})));
  return sources;
}

TEST(TorchFile, ReadsViewsOfOneStorage) {
  const auto sources = both_forms({{"all", pickled_tensor(floats(12), 0, {3, 4}, {4, 1})},
                                   {"part", pickled_tensor(floats(12), 2, {2, 2}, {2, 1})},
                                   {"transposed", pickled_tensor(floats(12), 0, {4, 3}, {1, 4})},
                                   {"strided", pickled_tensor(floats(12), 0, {2, 2, 2}, {6, 3, 2})},
                                   {"column", pickled_tensor(floats(12), 0, {3, 1}, {4, 7})},
                                   {"scalar", pickled_tensor(floats(12), 5, {}, {})},
                                   {"none", pickled_tensor(floats(12), 99, {0, 3}, {3, 1})}},
                                  12);
  for (const auto& source : sources) {
    ASSERT_EQ(source->tensors().size(), 7u);
    EXPECT_EQ(source->at("transposed").shape, (Shape{4, 3}));
    EXPECT_EQ(source->at("all").dtype, DType::f32);
    EXPECT_THAT(values(*source, "all"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    EXPECT_THAT(values(*source, "part"), ElementsAre(2, 3, 4, 5));
    EXPECT_THAT(values(*source, "transposed"), ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
    EXPECT_THAT(values(*source, "strided"), ElementsAre(0, 2, 3, 5, 6, 8, 9, 11));
    EXPECT_THAT(values(*source, "column"), ElementsAre(0, 4, 8));
    EXPECT_THAT(values(*source, "scalar"), ElementsAre(5));
    EXPECT_THAT(values(*source, "none"), ElementsAre());
    EXPECT_TRUE(source->bytes("all").has_value());
    EXPECT_FALSE(source->bytes("transposed").has_value());
    EXPECT_FALSE(source->mapped("transposed").defined());
    EXPECT_EQ(source->bytes("none")->size(), 0u);
  }
  // Data of the newer form is aligned.
  EXPECT_TRUE(sources[0]->mapped("part").defined());
}

TEST(TorchFile, ReadsAnyRangeThroughStrides) {
  const auto sources =
      both_forms({{"t", pickled_tensor(floats(60), 0, {4, 5, 3}, {1, 12, 4})}}, 60);
  for (const auto& source : sources) {
    const std::vector<float> whole = values(*source, "t");
    EXPECT_EQ(whole[1 * 15 + 2 * 3 + 1], 1 + 24 + 4);
    for (int64_t begin = 0; begin < 60; ++begin)
      for (int64_t n = 0; begin + n <= 60; ++n) {
        std::vector<float> part(static_cast<size_t>(n));
        source->read("t", begin, std::span(part));
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin));
      }
    std::vector<float> slice(12);
    source->read_slice("t", 1, 2, std::span(slice));
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(slice[i], whole[i / 3 * 15 + 6 + i % 3]);
    std::vector<float> one(1);
    expect_error([&] { source->read("t", 60, std::span(one)); }, {"f: tensor 't' has 60"});
    expect_error([&] { source->read("t", -1, std::span(one)); }, {"f: tensor 't'"});
    expect_error([&] { source->read("u", 0, std::span(one)); }, {"f: no tensor 'u'"});
    expect_error([&] { source->read_slice("t", 3, 0, std::span(one)); }, {"no index 0 on axis 3"});
    expect_error([&] { source->read_slice("t", 1, 5, std::span(slice)); },
                 {"no index 5 on axis 1"});
    expect_error([&] { source->read_slice("t", 1, 0, std::span(one)); }, {"12 elements"});
  }
}

TEST(TorchFile, KnowsTheTypes) {
  const std::pair<const char*, DType> types[] = {
      {"DoubleStorage", DType::f64},    {"FloatStorage", DType::f32}, {"HalfStorage", DType::f16},
      {"BFloat16Storage", DType::bf16}, {"LongStorage", DType::i64},  {"IntStorage", DType::i32},
      {"ShortStorage", DType::i16},     {"CharStorage", DType::i8},   {"ByteStorage", DType::u8},
      {"BoolStorage", DType::boolean}};
  for (const auto& [name, dtype] : types) {
    const std::string tensor = pickled_tensor(pickled_storage(name, "k", 2), 0, {2}, {1});
    const std::string data(2 * size_of(dtype), '\0');
    const auto zip = parse_torch(torch_zip(pickled_dict({{"t", tensor}}), {{"k", data}}));
    EXPECT_EQ(zip->at("t").dtype, dtype);
    EXPECT_THAT(values(*zip, "t"), ElementsAre(0, 0));
    const auto legacy =
        parse_torch(torch_legacy(pickled_dict({{"t", tensor}}), {{"k", le(int64_t{2}) + data}}));
    EXPECT_THAT(values(*legacy, "t"), ElementsAre(0, 0));
  }
}

// Newer PyTorch: bytes without a type, and the type with the tensor.
TEST(TorchFile, ReadsUntypedStorages) {
  const auto tensor = [](const std::string& type, int64_t n, int64_t offset) {
    const std::string id = pickled_tuple(
        {test::pickled_text("storage"), pickled_global("torch.storage", "UntypedStorage"),
         test::pickled_text("0"), test::pickled_text("cpu"), pickled_int(n)});
    return pickled_global("torch._utils", "_rebuild_tensor_v3") +
           pickled_tuple({id + "Q", pickled_int(offset), pickled_ints({2}), pickled_ints({1}),
                          "\x89", "N", type, "}"}) +
           "R";
  };
  const std::string f32 = pickled_global("torch", "float32");
  const auto read = [&](const std::string& t) {
    return parse_torch(torch_zip(pickled_dict({{"t", t}}), {{"0", counting(3)}}));
  };
  EXPECT_THAT(values(*read(tensor(f32, 12, 1)), "t"), ElementsAre(1, 2));
  expect_error([&] { read(tensor(f32, 12, 2)); }, {"tensor 't'", "reaches beyond the 3 elements"});
  expect_error([&] { read(tensor(pickled_global("torch", "float64"), 12, 0)); },
               {"beyond the 1 elements"});
  expect_error([&] { read(tensor("N", 12, 0)); }, {"expected an element type"});
  expect_error([&] { read(tensor(f32, 16, 0)); }, {"member 'm/data/0' has 12 bytes"});
}

TEST(TorchFile, UnwrapsTheStateOfATrainer) {
  const std::string tensor = pickled_tensor(floats(2), 0, {2}, {1});
  const std::string moment = pickled_tensor(pickled_storage("FloatStorage", "1", 1), 0, {1}, {1});
  for (const char* key : {"state_dict", "model"}) {
    const Entries entries = {{"optimizer", pickled_dict({{"moment", moment}})},
                             {"epoch", pickled_int(3)},
                             {key, pickled_dict({{"t", tensor}, {"n", pickled_int(1)}})}};
    // The storages of other things stand between in the older form.
    const auto legacy = parse_torch(
        torch_legacy(pickled_dict(entries), {{"1", legacy_data(1)}, {"0", legacy_data(2)}}));
    const auto zip =
        parse_torch(torch_zip(pickled_dict(entries), {{"1", counting(1)}, {"0", counting(2)}}));
    for (const auto* source : {legacy.get(), zip.get()}) {
      ASSERT_EQ(source->tensors().size(), 1u);
      EXPECT_THAT(values(*source, "t"), ElementsAre(0, 1));
    }
  }
  for (const std::string& none : {pickled_dict({}), pickled_dict({{"model", pickled_dict({})}}),
                                  pickled_dict({{"module", pickled_dict({{"t", tensor}})}})})
    expect_refused(torch_zip(none, {{"0", counting(2)}}), {"f: the pickled dict holds no tensors"});
  expect_refused(torch_zip("]", {}), {"f: expected a pickled dict of tensors"});
}

TEST(TorchFile, ParametersAreTensors) {
  const std::string parameter =
      pickled_global("torch._utils", "_rebuild_parameter") +
      pickled_tuple({pickled_tensor(floats(2), 0, {2}, {1}), "\x88", "}"}) + "R";
  for (const auto& source : both_forms({{"t", parameter}}, 2))
    EXPECT_THAT(values(*source, "t"), ElementsAre(0, 1));
}

TEST(TorchFile, RefusesViewsThatReachBeyondTheirStorage) {
  const auto view = [](int64_t offset, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& strides) {
    return pickled_tensor(floats(6), offset, shape, strides);
  };
  expect_tensor_refused(view(0, {7}, {1}), {"f: tensor 't'", "[7]", "beyond the 6 elements"});
  expect_tensor_refused(view(1, {2, 3}, {3, 1}), {"f: tensor 't'", "from element 1 on"});
  expect_tensor_refused(view(0, {2, 3}, {4, 1}), {"f: tensor 't'", "beyond"});
  expect_tensor_refused(view(6, {}, {}), {"f: tensor 't'", "from element 6 on"});
  expect_tensor_refused(view(-1, {1}, {1}), {"f: tensor 't'", "its offset"});
  expect_tensor_refused(view(0, {-1}, {1}), {"f: tensor 't'", "its size"});
  expect_tensor_refused(view(0, {2}, {-1}), {"f: tensor 't'", "its stride"});
  expect_tensor_refused(view(0, {2, 3}, {1}), {"f: tensor 't'", "1 strides for shape [2,3]"});
  expect_tensor_refused(view(0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1}), {"at most 8 numbers"});
  // Terabytes of one element.
  expect_tensor_refused(view(0, {int64_t{1} << 40}, {0}), {"repeats the 6 elements"});
  expect_tensor_refused(view(0, {2, 4}, {0, 1}), {"repeats the 6 elements"});
  // Products beyond 64 bits.
  const int64_t large = int64_t{1} << 56;
  expect_tensor_refused(view(0, {large, large}, {1, 1}), {"f: tensor 't'"});
  expect_tensor_refused(view(0, {257, 2}, {large, 1}), {"f: tensor 't'", "beyond"});
  expect_tensor_refused(view(large, {2}, {large}), {"f: tensor 't'", "beyond"});
  expect_tensor_refused(view(0, {int64_t{1} << 60}, {1}), {"f: tensor 't'", "its size"});
}

TEST(TorchFile, RefusesCallsThatDoNotHold) {
  const std::string rebuild = pickled_global("torch._utils", "_rebuild_tensor_v2");
  expect_tensor_refused(rebuild + ")R", {"f: tensor 't'", "too few arguments"});
  const auto with_storage = [&](const std::string& storage) {
    return pickled_tensor(storage, 0, {1}, {1});
  };
  expect_tensor_refused(with_storage("N"), {"expected a storage"});
  expect_tensor_refused(with_storage(")Q"), {"5 or 6 parts"});
  const std::string type = pickled_global("torch", "FloatStorage");
  const std::string text = test::pickled_text("storage");
  expect_tensor_refused(with_storage(pickled_tuple({"N", type, text, text, "K\x01"}) + "Q"),
                        {"not that of a storage"});
  expect_tensor_refused(with_storage(pickled_tuple({text, "N", text, text, "K\x01"}) + "Q"),
                        {"type of a storage"});
  expect_tensor_refused(with_storage(pickled_tuple({text, type, "N", text, "K\x01"}) + "Q"),
                        {"key of its storage"});
  expect_tensor_refused(with_storage(pickled_tuple({text, type, text, text, "N"}) + "Q"),
                        {"the size of its storage"});
  expect_tensor_refused(with_storage(floats(-6)), {"the size of its storage"});
  const std::string good = pickled_tensor(floats(6), 0, {6}, {1});
  expect_refused(torch_zip(pickled_dict({{"t", good}, {"t", good}}), {{"0", counting(6)}}),
                 {"f: tensor 't'", "occurs twice"});
  expect_refused(
      torch_zip(pickled_dict({{"t", good}, {"u", with_storage(floats(5))}}), {{"0", counting(6)}}),
      {"storage '0' is 5 elements of f32, elsewhere 6 of f32"});
  expect_refused(torch_zip(std::string("}(K\x01") + good + "u", {{"0", counting(6)}}),
                 {"expected a text as the name"});
}

TEST(TorchFile, RefusesArchivesWithoutTheirMembers) {
  const std::string dict = pickled_dict({{"t", pickled_tensor(floats(6), 0, {6}, {1})}});
  const std::string pickle = test::whole_pickle(dict);
  expect_refused(torch_zip(dict, {}), {"f: member 'm/data/0' is missing"});
  expect_refused(torch_zip(dict, {{"1", counting(6)}}), {"f: member 'm/data/0' is missing"});
  for (const int n : {0, 5, 7})
    expect_refused(torch_zip(dict, {{"0", counting(n)}}),
                   {"member 'm/data/0' has", "expected 6 elements of f32"});
  const test::ZipMember data{"m/data/0", counting(6)};
  expect_refused(test::zip_bytes({{"m/data.pkl", pickle}, {"m/data/0", counting(6), 8}}),
                 {"member 'm/data/0'", "compressed (method 8)"});
  expect_refused(test::zip_bytes({data}), {"a zip file without FOLDER/data.pkl"});
  expect_refused(test::zip_bytes({{"m/n/data.pkl", pickle}, data}), {"without FOLDER/data.pkl"});
  expect_refused(test::zip_bytes({{"m/data.pkl", pickle}, {"n/data.pkl", pickle}, data}),
                 {"holds both 'm/data.pkl' and 'n/data.pkl'"});
  expect_refused(test::zip_bytes({{"m/data.pkl", pickle}, data, {"m/byteorder", "big"}}),
                 {"member 'm/byteorder' says 'big'"});
  expect_refused(test::zip_bytes({{"m/data.pkl", "\x80\x02(ios\nx\n."}, data}),
                 {"f: m/data.pkl: byte 3: opcode INST"});
  expect_refused(test::zip_bytes({{"m/data.pkl", pickle}, data}).substr(1), {"f: expected a file"});
}

TEST(TorchFile, RefusesOlderFilesThatDoNotHold) {
  const std::string dict = pickled_dict({{"t", pickled_tensor(floats(6), 0, {6}, {1})}});
  const std::string whole = torch_legacy(dict, {{"0", legacy_data(6)}});
  EXPECT_NO_THROW(parse_torch(whole));
  for (size_t n = 0; n < whole.size(); ++n) expect_refused(whole.substr(0, n), {"f: "});
  expect_refused(torch_legacy(dict, {}), {"storage '0' is not in its list of keys"});
  expect_refused(torch_legacy(dict, {{"1", legacy_data(6)}}), {"the storage '1' in its list"});
  expect_refused(torch_legacy(dict, {{"0", legacy_data(6)}, {"0", legacy_data(6)}}),
                 {"the storage '0' in its list", "twice"});
  for (const int64_t n : {int64_t{5}, int64_t{-6}, INT64_MAX, INT64_MIN})
    expect_refused(torch_legacy(dict, {{"0", le(n) + counting(6)}}),
                   {"storage '0' has " + std::to_string(n) + " elements, expected 6"});
  const int64_t large = int64_t{1} << 50;
  expect_refused(torch_legacy(pickled_dict({{"t", pickled_tensor(floats(large), 0, {6}, {1})}}),
                              {{"0", le(large) + counting(6)}}),
                 {"f: byte", "4503599627370496 bytes are expected and 24 are left"});
  const std::string end = test::whole_pickle(dict) + test::whole_pickle("]");
  expect_refused(test::legacy_header("\x89") + end, {"little-endian"});
  expect_refused(test::legacy_header("K\x01") + end, {"little-endian"});
  const std::string magic = test::legacy_header().substr(0, 15);
  expect_refused(magic + test::whole_pickle(pickled_int(1000)) + test::whole_pickle("}") + end,
                 {"not the protocol 1001"});
  expect_refused(test::legacy_header() + test::whole_pickle(dict) + test::whole_pickle("}"),
                 {"no list of keys"});
}

TEST(TorchFile, ReadsPartsOfAStorageInTheOlderForm) {
  const auto with_view = [](int64_t begin, int64_t n) {
    const std::string view =
        pickled_tuple({test::pickled_text("v"), pickled_int(begin), pickled_int(n)});
    return torch_legacy(
        pickled_dict(
            {{"t", pickled_tensor(pickled_storage("FloatStorage", "0", 6, view), 1, {2}, {1})}}),
        {{"0", legacy_data(6)}});
  };
  EXPECT_THAT(values(*parse_torch(with_view(2, 3)), "t"), ElementsAre(3, 4));
  expect_refused(with_view(2, 2), {"beyond the 2 elements"});
  expect_refused(with_view(4, 3), {"the view of its storage reaches beyond it"});
  expect_refused(with_view(7, 0), {"the view of its storage reaches beyond it"});
  expect_refused(with_view(-1, 3), {"the offset of its view"});
}

TEST(TorchFile, OpeningNamesTheFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "pytorch_model.bin";
  expect_error([&] { open_torch_file(path); }, {path});
  std::ofstream(path).close();
  expect_error([&] { open_torch_file(path); }, {path, "expected a file of torch.save"});
  std::ofstream(path) << torch_zip(pickled_dict({{"t", pickled_tensor(floats(2), 0, {2}, {1})}}),
                                   {{"0", counting(2)}});
  EXPECT_THAT(values(*open_tensor_file(path), "t"), ElementsAre(0, 1));
}

}  // namespace
}  // namespace dcformer
