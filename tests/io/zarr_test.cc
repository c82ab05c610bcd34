#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "dcformer/base/file.h"
#include "dcformer/io/zarr_chunk.h"
#include "dcformer/io/zarr_metadata.h"
#include "dcformer/io/zarr_source.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

std::string packed(const std::string& bytes) {
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), bytes.data(), bytes.size(), 1));
  return frame;
}

// A `.zarray` of six f32 in chunks of four, with some keys replaced.
std::string metadata(const std::vector<std::pair<std::string, std::string>>& other = {}) {
  std::vector<std::pair<std::string, std::string>> keys = {
      {"zarr_format", "2"}, {"shape", "[6]"},       {"chunks", "[4]"},      {"dtype", R"("<f4")"},
      {"order", R"("C")"},  {"compressor", "null"}, {"fill_value", "null"}, {"filters", "null"}};
  for (const auto& [key, value] : other) {
    bool found = false;
    for (auto& entry : keys)
      if (entry.first == key) found = true, entry.second = value;
    if (!found) keys.emplace_back(key, value);
  }
  std::string text = "{";
  for (const auto& [key, value] : keys)
    text += (text.size() > 1 ? ",\"" : "\"") + key + "\":" + value;
  return text + "}";
}

TEST(ZarrMetadata, ReadsWhatItSays) {
  const ZarrMetadata plain = parse_zarr_metadata(metadata(), "f");
  EXPECT_EQ(plain.shape, (Shape{6}));
  EXPECT_EQ(plain.chunk, (Shape{4}));
  EXPECT_EQ(plain.chunk_bytes(), 16u);
  EXPECT_FALSE(plain.zstd);
  EXPECT_EQ(plain.fill, 0);
  const ZarrMetadata other =
      parse_zarr_metadata(metadata({{"shape", "[2,3,0]"},
                                    {"chunks", "[1,5,2]"},
                                    {"dtype", R"("bfloat16")"},
                                    {"compressor", R"({"id":"zstd","level":1})"},
                                    {"fill_value", "2.5"},
                                    {"filters", "[]"},
                                    {"dimension_separator", R"("/")"}}),
                          "f");
  EXPECT_EQ(other.dtype, DType::bf16);
  EXPECT_TRUE(other.zstd);
  EXPECT_EQ(other.fill, 2.5f);
  EXPECT_EQ(chunk_name(other, {1, 0, 12}), "1/0/12");
  EXPECT_EQ(chunk_name(plain, {12}), "12");
  EXPECT_EQ(chunk_name(plain, {}), "0");
  EXPECT_EQ(chunk_name(plain, {1, 2}), "1.2");
  EXPECT_TRUE(std::isnan(parse_zarr_metadata(metadata({{"fill_value", R"("NaN")"}}), "f").fill));
  // Of a single axis both orders are the same.
  EXPECT_NO_THROW(parse_zarr_metadata(metadata({{"order", R"("F")"}}), "f"));
}

TEST(ZarrMetadata, RefusesWhatDoesNotHold) {
  const auto expect_refused = [](const std::string& key, const std::string& value,
                                 const std::vector<std::string>& parts) {
    expect_error([&] { parse_zarr_metadata(metadata({{key, value}}), "f"); }, parts);
  };
  expect_refused("zarr_format", "3", {"f: zarr_format: expected 2, got 3"});
  for (const char* shape : {"6", "[-1]", "[1.5]", "[18446744073709551615]", "[1099511627777]",
                            R"(["6"])", "[1,1,1,1,1,1,1,1,1]", "null"})
    expect_refused("shape", shape, {"f: shape: expected"});
  expect_refused("shape", "[1048576,1048577]", {"f: shape: expected at most 2^40 elements"});
  expect_refused("shape", "[0,1099511627776,1099511627776]", {"f: shape: expected at most 2^40"});
  for (const char* chunks : {"[0]", "[-4]", "[4.0]", "[1099511627777]", "{}"})
    expect_refused("chunks", chunks, {"f: chunks: expected"});
  expect_refused("chunks", "[2,2]", {"f: chunks [2,2] for shape [6]"});
  expect_refused("chunks", "[]", {"f: chunks [] for shape [6]"});
  expect_refused("dtype", R"(">f4")", {"f: dtype: expected", "got \">f4\""});
  expect_refused("dtype", R"([["a","<f4"]])", {"f: dtype: expected"});
  expect_refused("compressor", R"({"id":"blosc"})", {"f: compressor: expected zstd or null"});
  expect_refused("compressor", R"("zstd")", {"f: compressor"});
  expect_refused("filters", R"([{"id":"delta"}])", {"f: filters: expected null"});
  expect_refused("order", R"("A")", {"f: order: expected \"C\""});
  expect_refused("fill_value", R"("x")", {"f: fill_value: expected"});
  expect_refused("fill_value", "[1]", {"f: fill_value: expected"});
  expect_refused("dimension_separator", R"("..")", {"f: dimension_separator"});
  expect_error(
      [] {
        parse_zarr_metadata(
            metadata({{"shape", "[2,2]"}, {"chunks", "[2,2]"}, {"order", R"("F")"}}), "f");
      },
      {"f: order: expected \"C\", got \"F\""});
  expect_error([] { parse_zarr_metadata("[]", "f"); }, {"f: expected a JSON object"});
  expect_error([] { parse_zarr_metadata("{", "f"); }, {"f: not valid JSON"});
  expect_error([] { parse_zarr_metadata(std::string(9000, '['), "f"); }, {"f: nested deeper"});
}

// All pieces of a chunk, in memory of exactly the file's size.
std::string decoded(const std::string& file, bool zstd, size_t size, size_t piece) {
  const std::shared_ptr<std::byte[]> copy(new std::byte[file.size()]);
  if (!file.empty()) std::memcpy(copy.get(), file.data(), file.size());
  ZarrChunk chunk({copy, copy.get()}, file.size(), zstd, size, "f");
  std::string bytes;
  while (bytes.size() < size) {
    const auto part = chunk.next(std::min(piece, size - bytes.size()));
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return bytes;
}

std::string some_bytes(size_t n) {
  std::string bytes;
  for (size_t i = 0; i < n; ++i) bytes += static_cast<char>(i * i >> 3);
  return bytes;
}

TEST(ZarrChunk, ComesInPieces) {
  const std::string bytes = some_bytes(5000);
  for (const size_t piece : {1u, 7u, 4096u, 5000u}) {
    EXPECT_EQ(decoded(bytes, false, 5000, piece), bytes);
    EXPECT_EQ(decoded(packed(bytes), true, 5000, piece), bytes);
  }
  // Frames may follow each other; one that does not say its length.
  EXPECT_EQ(decoded(packed(bytes) + packed("abc"), false,
                    packed(bytes).size() + packed("abc").size(), 100),
            packed(bytes) + packed("abc"));
}

TEST(ZarrChunk, RefusesOtherSizes) {
  const std::string bytes = some_bytes(5000);
  expect_error([&] { decoded(bytes, false, 4999, 100); },
               {"f: 5000 bytes, expected a chunk of 4999"});
  expect_error([&] { decoded("", false, 1, 100); }, {"f: 0 bytes"});
  const std::string frame = packed(bytes);
  for (const size_t size : {size_t{4999}, size_t{5001}, size_t{1} << 50})
    expect_error([&] { decoded(frame, true, size, 100); }, {"f: its zstd frame claims 5000 bytes"});
  expect_error([&] { decoded(bytes, true, 5000, 100); }, {"f: not zstd data"});
  expect_error([&] { decoded("", true, 5000, 100); }, {"f: "});
  for (size_t n = 1; n < frame.size(); ++n)
    expect_error([&] { decoded(frame.substr(0, n), true, 5000, 700); }, {"f: "});
  expect_error([&] { decoded(frame + frame, true, 5000, 100); }, {"f: more data than the chunk"});
  expect_error([&] { decoded(frame + "x", true, 5000, 100); }, {"f: more data than the chunk"});
}

TEST(ZarrChunk, RefusesClaimsOfTerabytes) {
  // A frame header that says 2^42 bytes, with a window of 2^42 and of 8 MB (RFC 8878, 3.1.1.1).
  for (const char window : {'\xa0', '\x68'}) {
    std::string frame = "\x28\xb5\x2f\xfd\xc0";
    frame += window;
    const uint64_t claimed = uint64_t{1} << 42;
    frame.append(reinterpret_cast<const char*>(&claimed), 8);
    frame += std::string("\x01\x00\x00", 3);
    expect_error([&] { decoded(frame, true, claimed, 1 << 20); },
                 {"f: 17 bytes of zstd data cannot hold a chunk of 4398046511104"});
  }
  // Of a length that is not said, with a window of 512 MiB.
  const std::string large_window = std::string("\x28\xb5\x2f\xfd\x00\x98\x01\x00\x00", 9);
  expect_error([&] { decoded(large_window, true, 100, 100); }, {"f: broken zstd data"});
}

TEST(ZarrChunk, DamageIsAnError) {
  const std::string bytes = some_bytes(3000);
  const std::string frame = packed(bytes);
  for (size_t i = 0; i < frame.size(); ++i)
    for (const int bit : {0, 3, 7}) {
      std::string broken = frame;
      broken[i] = static_cast<char>(broken[i] ^ (1 << bit));
      // Without a checksum some damage only changes values.
      try {
        EXPECT_EQ(decoded(broken, true, 3000, 500).size(), 3000u);
      } catch (const Error& e) {
        EXPECT_THAT(e.what(), ::testing::StartsWith("f: "));
      }
    }
}

class ZarrFolder : public ::testing::Test {
 protected:
  void array(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(folder_ / name);
    replace_file(folder_ / (name + "/.zarray"), text);
  }
  // A chunk of f32.
  void chunk(const std::string& path, const std::vector<float>& values, bool zstd = false) {
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    std::filesystem::create_directories(std::filesystem::path(folder_ / path).parent_path());
    replace_file(folder_ / path, zstd ? packed(bytes) : bytes);
  }
  std::vector<float> read(const std::string& name, int64_t begin, int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    open_zarr_folder(folder_.path())->read(name, begin, std::span(values));
    return values;
  }

  test::TemporaryFolder folder_;
};

TEST_F(ZarrFolder, ChunksAreJoinedAndPaddingIsLeftOut) {
  array("a", metadata());
  chunk("a/0", {0, 1, 2, 3});
  chunk("a/1", {4, 5, -1, -1});
  EXPECT_THAT(read("a", 0, 6), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(read("a", 3, 2), ElementsAre(3, 4));
  const auto source = open_zarr_folder(folder_.path());
  EXPECT_FALSE(source->mapped("a").defined());
  EXPECT_FALSE(source->bytes("a").has_value());
  EXPECT_EQ(source->at("a").file, folder_ / "a");
}

TEST_F(ZarrFolder, AbsentChunksHaveTheFillValue) {
  array("a", metadata({{"fill_value", "7.5"}}));
  chunk("a/1", {4, 5, -1, -1});
  EXPECT_THAT(read("a", 1, 5), ElementsAre(7.5, 7.5, 7.5, 4, 5));
  array("b", metadata());
  EXPECT_THAT(read("b", 0, 6), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST_F(ZarrFolder, AScalarIsTheChunk0) {
  array("step", metadata({{"shape", "[]"}, {"chunks", "[]"}, {"dtype", R"("<i4")"}}));
  replace_file(folder_ / "step/0", std::string("\x29\0\0\0", 4));
  EXPECT_THAT(read("step", 0, 1), ElementsAre(41));
  EXPECT_EQ(open_zarr_folder(folder_.path())->at("step").dtype, DType::i32);
}

// [5,3,4] in chunks of every kind: any range and any slice are those of the whole.
TEST_F(ZarrFolder, RangesAndSlicesOfAnyChunks) {
  const std::vector<std::vector<int64_t>> chunkings = {{5, 3, 4}, {2, 2, 3}, {1, 1, 1},
                                                       {7, 4, 9}, {5, 1, 4}, {3, 3, 2}};
  for (const auto& c : chunkings)
    for (const bool zstd : {false, true}) {
      const std::string text = fmt::format("[{},{},{}]", c[0], c[1], c[2]);
      array("a", metadata({{"shape", "[5,3,4]"},
                           {"chunks", text},
                           {"dimension_separator", R"("/")"},
                           {"compressor", zstd ? R"({"id":"zstd"})" : "null"}}));
      for (int64_t i = 0; i * c[0] < 5; ++i)
        for (int64_t j = 0; j * c[1] < 3; ++j)
          for (int64_t k = 0; k * c[2] < 4; ++k) {
            std::vector<float> values;
            for (int64_t x = i * c[0]; x < (i + 1) * c[0]; ++x)
              for (int64_t y = j * c[1]; y < (j + 1) * c[1]; ++y)
                for (int64_t z = k * c[2]; z < (k + 1) * c[2]; ++z)
                  values.push_back(x < 5 && y < 3 && z < 4 ? static_cast<float>(x * 12 + y * 4 + z)
                                                           : std::nanf(""));
            chunk(fmt::format("a/{}/{}/{}", i, j, k), values, zstd);
          }
      const auto source = open_zarr_folder(folder_.path());
      for (int64_t begin = 0; begin <= 60; begin += 7)
        for (int64_t n = 0; begin + n <= 60; n += 5) {
          std::vector<float> part(static_cast<size_t>(n));
          source->read("a", begin, std::span(part));
          for (int64_t i = 0; i < n; ++i)
            ASSERT_EQ(part[static_cast<size_t>(i)], static_cast<float>(begin + i)) << text;
        }
      const int64_t extents[] = {5, 3, 4};
      for (int axis = 0; axis < 3; ++axis)
        for (int64_t at = 0; at < extents[axis]; ++at) {
          std::vector<float> expected;
          for (int64_t i = 0; i < 60; ++i) {
            const int64_t index[] = {i / 12, i / 4 % 3, i % 4};
            if (index[axis] == at) expected.push_back(static_cast<float>(i));
          }
          std::vector<float> slice(expected.size());
          source->read_slice("a", axis, at, std::span(slice));
          ASSERT_EQ(slice, expected) << text << " axis " << axis << " index " << at;
        }
      std::filesystem::remove_all(folder_ / "a");
    }
}

TEST_F(ZarrFolder, LargeChunksComeInPieces) {
  array("a", metadata({{"shape", "[3,100001]"},
                       {"chunks", "[3,100001]"},
                       {"compressor", R"({"id":"zstd"})"}}));
  std::vector<float> values(300003);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  chunk("a/0.0", values, true);
  EXPECT_EQ(read("a", 0, 300003), values);
  EXPECT_THAT(read("a", 131071, 2), ElementsAre(131071, 131072));
}

TEST_F(ZarrFolder, ChunksOfTheWrongSizeNameTheirFile) {
  array("a", metadata());
  chunk("a/0", {0, 1, 2});
  expect_error([&] { read("a", 0, 1); }, {folder_ / "a/0", "12 bytes, expected a chunk of 16"});
  array("b", metadata({{"compressor", R"({"id":"zstd"})"}}));
  chunk("b/0", {0, 1, 2, 3, 4}, true);
  expect_error([&] { read("b", 0, 1); }, {folder_ / "b/0", "claims 20 bytes"});
  std::filesystem::create_directories(folder_ / "b/1");
  expect_error([&] { read("b", 5, 1); }, {folder_ / "b/1", "not a regular file"});
}

TEST_F(ZarrFolder, OnlyTheArraysOfAPrefixAreLookedAt) {
  array("params.a", metadata());
  array("opt_state.a", "broken");
  EXPECT_EQ(open_zarr_folder(folder_.path(), "params.")->tensors().size(), 1u);
  expect_error([&] { open_zarr_folder(folder_.path()); }, {"opt_state.a/.zarray: not valid JSON"});
  expect_error([&] { open_zarr_folder(folder_.path(), "other."); },
               {folder_.path(), "holds no zarr arrays, folders 'other.…'"});
  replace_file(folder_ / "manifest.ocdbt", "x");
  expect_error([&] { open_zarr_folder(folder_.path(), "other."); }, {"OCDBT"});
  replace_file(folder_ / "params.a/zarr.json", "{}");
  expect_error([&] { open_zarr_folder(folder_.path(), "params."); }, {"format 3"});
}

TEST_F(ZarrFolder, CheckpointsAreFoundInTheirFolders) {
  const auto expect_found = [&](const std::string& path, const std::string& found) {
    EXPECT_EQ(find_orbax_arrays(folder_ / path), folder_ / found);
  };
  expect_error([&] { find_orbax_arrays(folder_.path()); },
               {folder_.path(), "no Orbax checkpoint", "state, items or default"});
  expect_error([&] { find_orbax_arrays(folder_ / "absent"); }, {"absent: holds no Orbax"});
  array("run/checkpoint/40/state/params.a", metadata());
  array("run/checkpoint/9/state/params.a", metadata());
  array("run/checkpoint/x99/state/params.a", metadata());
  expect_found("run", "run/checkpoint/40/state");
  expect_found("run/checkpoint", "run/checkpoint/40/state");
  expect_found("run/checkpoint/9", "run/checkpoint/9/state");
  expect_found("run/checkpoint/40/state", "run/checkpoint/40/state");
  array("other/checkpoints/7/default/a", metadata());
  expect_found("other", "other/checkpoints/7/default");
  array("items/items/a", metadata());
  expect_found("items", "items/items");
}

}  // namespace
}  // namespace dcformer
