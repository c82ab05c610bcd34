#include "dcformer/text/stream_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dcformer/text/byte_tokenizer.h"
#include "tests/io/expect_error.h"

namespace dcformer {
namespace {

using ::testing::ElementsAre;

/// Pieces as given, for every way of cutting a text into tokens.
class PieceTokenizer : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::string kind() const override { return "test"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_document() const override { return -1; }
  std::vector<int32_t> encode(std::string_view) const override { return {}; }
  std::string_view token_bytes(int32_t id) const override {
    return pieces_[static_cast<size_t>(id)];
  }
  void save(const std::string&) const override {}

 private:
  std::vector<std::string> pieces_;
};

// What comes out of each push, and at the end.
std::vector<std::string> stream(const std::vector<std::string>& pieces) {
  const PieceTokenizer tokenizer(pieces);
  StreamDecoder decoder(tokenizer);
  std::vector<std::string> out;
  for (size_t i = 0; i < pieces.size(); ++i) out.push_back(decoder.push(static_cast<int32_t>(i)));
  out.push_back(decoder.finish());
  return out;
}

TEST(StreamDecoder, HoldsBackTheBeginningOfACharacter) {
  EXPECT_THAT(stream({"a", "\xC3", "\xA9", "b"}), ElementsAre("a", "", "\xC3\xA9", "b", ""));
  EXPECT_THAT(stream({"x\xE2", "\x96", "\x81y\xF0\x9F", "\x98\x80"}),
              ElementsAre("x", "", "\xE2\x96\x81y", "\xF0\x9F\x98\x80", ""));
  EXPECT_THAT(stream({"ab\xF0\x9F\x98"}), ElementsAre("ab", "\xF0\x9F\x98"));
  EXPECT_THAT(stream({"", ""}), ElementsAre("", "", ""));
}

TEST(StreamDecoder, PassesOnWhatCannotBecomeACharacter) {
  EXPECT_THAT(stream({"\xFF", "\x80", "a"}), ElementsAre("\xFF", "\x80", "a", ""));
  EXPECT_THAT(stream({"\xE2", "(", "b"}), ElementsAre("", "\xE2(", "b", ""));
  EXPECT_THAT(stream({"\xE2\x96", "\xC3", "\xA9"}), ElementsAre("", "\xE2\x96", "\xC3\xA9", ""));
  // A surrogate's second byte already cannot follow.
  EXPECT_THAT(stream({"\xED", "\xA0", "\x80"}), ElementsAre("", "\xED\xA0", "\x80", ""));
}

TEST(StreamDecoder, EverySplitGivesWholeCharacters) {
  const std::vector<std::string> characters = {"a", "\xC3\xA9", "\xE5\xA4\xA9", "\xF0\x9F\x98\x80"};
  std::string text;
  for (const std::string& c : characters) text += c;
  // A set bit cuts behind that byte.
  for (uint32_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    std::vector<std::string> pieces = {""};
    for (size_t i = 0; i < text.size(); ++i) {
      pieces.back() += text[i];
      if ((cuts >> i & 1) != 0) pieces.emplace_back();
    }
    std::string given;
    size_t pushed = 0;
    const std::vector<std::string> out = stream(pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      given += out[i];
      pushed += pieces[i].size();
      // All the characters that have come whole, and no part of the next.
      size_t whole = 0;
      for (const std::string& c : characters) {
        if (whole + c.size() > pushed) break;
        whole += c.size();
      }
      ASSERT_EQ(given, text.substr(0, whole)) << "cuts " << cuts << ", piece " << i;
    }
    ASSERT_EQ(out.back(), "");
  }
}

TEST(StreamDecoder, StartsAnewAfterTheEnd) {
  const ByteTokenizer tokenizer;
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.finish(), "\xC3");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(256), "");
  test::expect_error([&] { decoder.push(257); }, {"id 257"});
}

}  // namespace
}  // namespace dcformer
