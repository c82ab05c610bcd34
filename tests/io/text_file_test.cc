#include "dcformer/io/text_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>

#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using test::expect_error;

// One gzip member.
std::string pack(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

// Longer than the unpacking buffer.
std::string long_text() {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += "line " + std::to_string(i * 7919 % 10007) + "\n";
  return text;
}

TEST(Gzip, UnpacksWhatWasPacked) {
  for (const std::string& text : {std::string(), std::string("x"), std::string(1 << 18, 'a'),
                                  std::string(1 << 19, 'b'), long_text()})
    EXPECT_EQ(unpack_gzip(pack(text), "x"), text);
}

TEST(Gzip, JoinsMembers) {
  EXPECT_EQ(unpack_gzip(pack("one ") + pack("") + pack("two"), "x"), "one two");
  EXPECT_EQ(unpack_gzip(pack(long_text()) + pack(long_text()), "x"), long_text() + long_text());
}

TEST(Gzip, RefusesEveryCut) {
  const std::string packed = pack("some text, some text, some more text");
  for (size_t n = 0; n < packed.size(); ++n)
    expect_error([&] { unpack_gzip(packed.substr(0, n), "cut.gz"); }, {"cut.gz: ", "cut short"});
  const std::string two = packed + packed;
  for (size_t n = packed.size() + 1; n < two.size(); ++n)
    expect_error([&] { unpack_gzip(two.substr(0, n), "cut.gz"); }, {"cut.gz: ", "cut short"});
}

TEST(Gzip, RefusesEveryChangedByteOfDataAndSums) {
  const std::string packed = pack("some text, some text, some more text");
  // The ten bytes of the header hold a time and such, which may be anything.
  for (size_t i = 10; i < packed.size(); ++i) {
    std::string broken = packed;
    broken[i] = static_cast<char>(broken[i] ^ 0x10);
    expect_error([&] { unpack_gzip(broken, "bad.gz"); }, {"bad.gz: "});
  }
}

TEST(Gzip, RefusesOtherBytes) {
  expect_error([] { unpack_gzip("plain text", "x.gz"); }, {"x.gz: not valid gzip data"});
  expect_error([] { unpack_gzip(pack("text") + "rest", "x.gz"); }, {"x.gz: not valid gzip data"});
  // zlib's own frame is not gzip.
  expect_error([] { unpack_gzip("\x78\x9c\x03\x00\x00\x00\x00\x01", "x.gz"); }, {"x.gz: "});
}

class TextFileTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  test::TemporaryFolder folder_;
};

TEST_F(TextFileTest, ReadsBytesAsTheyAre) {
  using namespace std::string_literals;
  const std::string text = "a\r\n\tb\0c \xE2\x96\x81\xF0\x9F\x98\x80"s;
  EXPECT_EQ(read_text_file(write("a.txt", text)), text);
  EXPECT_EQ(read_text_file(write("a.txt.gz", pack(text))), text);
}

TEST_F(TextFileTest, NamesTheFileAndTheFault) {
  const auto fault = [&](const std::string& path, const std::string& what) {
    expect_error([&] { read_text_file(path); }, {path + ": ", what});
  };
  fault(folder_ / "absent.txt", "No such file");
  fault(folder_.path(), "folder");
  fault(write("empty.txt", ""), "empty");
  fault(write("empty.gz", ""), "empty");
  fault(write("nothing.gz", pack("")), "no text");
  fault(write("not.gz", "text"), "not valid gzip data");
  fault(write("cut.gz", pack("text").substr(0, 12)), "cut short");
  fault(write("invalid.txt", "abc\xC3\xA9\xC3("), "not valid UTF-8 at byte offset 5");
  fault(write("ends.txt", "abc\xF0\x9F\x98"), "not valid UTF-8 at byte offset 3");
  fault(write("invalid.gz", pack("\xED\xA0\x80")), "not valid UTF-8 at byte offset 0");
}

}  // namespace
}  // namespace dcformer
