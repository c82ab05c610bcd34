#include "dcformer/text/sentencepiece_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dcformer/base/file.h"
#include "dcformer/text/sentencepiece_tokenizer.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/text/sentencepiece_model.h"

namespace dcformer {
namespace {

using namespace test;
using namespace std::string_literals;

std::string model_with(const std::string& pieces, const std::string& rest = {}) {
  return usual_pieces() + pieces + bpe_trainer() + identity_normalizer() + rest;
}

void expect_refused(const std::string& model, const std::string& why) {
  expect_error([&] { SentencePieceTokenizer(model, "m"); }, {"m: ", why});
}

std::string nested_pieces(size_t n) {
  std::string pieces;
  for (size_t i = 1; i <= n; ++i)
    pieces += piece_field(std::string(i, 'a'), PieceType::user_defined);
  return pieces;
}

TEST(SentencePieceModel, ByHandIsOfUse) {
  const SentencePieceTokenizer tokenizer(
      model_with(piece_field("a") + piece_field("b") + piece_field("ab")), "m");
  EXPECT_EQ(tokenizer.encode("abc"), (std::vector<int32_t>{260, 2 + 'c'}));
  EXPECT_EQ(tokenizer.end_of_document(), 1);
}

TEST(SentencePieceModel, RefusesEveryCut) {
  const std::string model = model_with(piece_field("a"));
  for (size_t n = 0; n < model.size(); ++n)
    expect_error([&] { SentencePieceTokenizer(model.substr(0, n), "m"); }, {"m: "});
}

TEST(SentencePieceModel, RefusesBrokenFields) {
  const std::string good = model_with("");
  // A length beyond the file, and one beyond all files.
  expect_refused(good + varint(1 << 3 | 2) + varint(100) + "x", "broken or cut short");
  expect_refused(good + varint(1 << 3 | 2) + varint(UINT64_MAX) + "x", "broken or cut short");
  // A number without end, a group, field 0, a field beyond 32 bits.
  expect_refused(good + varint(9 << 3) + std::string(11, '\xFF'), "broken or cut short");
  expect_refused(good + varint(9 << 3 | 3), "broken or cut short");
  expect_refused(good + number_field(0, 1), "broken or cut short");
  expect_refused(good + number_field(uint64_t{1} << 30, 1), "broken or cut short");
  // Numbers of fixed length.
  expect_refused(good + varint(9 << 3 | 1) + "1234567", "broken or cut short");
  expect_refused(good + varint(9 << 3 | 5) + "123", "broken or cut short");
  EXPECT_NO_THROW(SentencePieceTokenizer(
      good + varint(200 << 3 | 1) + "12345678" + varint(201 << 3 | 5) + "1234", "m"));
}

TEST(SentencePieceModel, RefusesRules) {
  const std::string rules = bytes_field(2, "\4\0\0\0"s + std::string(8, '\0'));
  expect_refused(model_with("", bytes_field(3, rules)), "rewrites its text by rules");
  expect_refused(model_with("", bytes_field(5, rules)), "rewrites its text by rules");
  EXPECT_NO_THROW(SentencePieceTokenizer(model_with("", bytes_field(3, bytes_field(2, ""))), "m"));
}

// The library reads beyond an array of 64 results.
TEST(SentencePieceModel, RefusesDeeplyNestedPieces) {
  const SentencePieceTokenizer tokenizer(
      model_with(nested_pieces(64) + piece_field("b", PieceType::user_defined)), "m");
  const std::string text(200, 'a');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  expect_refused(model_with(nested_pieces(65)),
                 "more than 64 user-defined pieces begin one another");
  // Side by side they are harmless.
  std::string many;
  for (int i = 0; i < 200; ++i)
    many += piece_field(fmt::format("x{}", 1000 + i), PieceType::user_defined);
  EXPECT_NO_THROW(SentencePieceTokenizer(model_with(many), "m"));
}

TEST(SentencePieceModel, RefusesPiecesThatBreakTheLibrary) {
  expect_refused(model_with(piece_field("")), "piece 258 has 0 bytes");
  expect_refused(model_with(piece_field("a\0b"s)), "piece 258 has 3 bytes");
  expect_refused(model_with(piece_field("a\0b"s, PieceType::user_defined)), "none of them NUL");
  expect_refused(model_with(piece_field(std::string(8000, 'a'))), "piece 258 has 8000 bytes");
  EXPECT_NO_THROW(SentencePieceTokenizer(model_with(piece_field(std::string(7999, 'a'))), "m"));
  expect_refused(model_with(piece_field("a") + piece_field("a")), "not a SentencePiece model");
  // A megabyte of empty pieces would be 50 in the library.
  std::string empty;
  for (int i = 0; i < 1 << 19; ++i) empty += "\x0A\0"s;
  expect_refused(model_with(empty), "piece 258 has 0 bytes");
}

TEST(SentencePieceModel, RefusesModelsThatCannotGiveAllBytesBack) {
  expect_refused(piece_field("<unk>", PieceType::unknown) + piece_field("a") +
                     bytes_field(2, number_field(3, 2)) + identity_normalizer(),
                 "lacks byte pieces");
  expect_refused(usual_pieces() + bpe_trainer() + identity_normalizer(number_field(3, 1)),
                 "dummy prefix");
  for (const uint64_t type : {1, 3, 4})
    expect_refused(usual_pieces() + bytes_field(2, number_field(3, type) + number_field(35, 1)) +
                       identity_normalizer(),
                   "not byte-pair encoding");
  expect_refused(usual_pieces() + identity_normalizer(), "not byte-pair encoding");
  expect_refused(bpe_trainer() + identity_normalizer(), "it has no pieces");
}

TEST(SentencePieceModel, SpecialPiecesInAModelNeverComeOfText) {
  // A control and the unknown piece of one character each, which the library itself does emit.
  const std::string model = piece_field("u", PieceType::unknown) +
                            piece_field("c", PieceType::control) +
                            usual_pieces().substr(piece_field("<unk>", PieceType::unknown).size()) +
                            piece_field("ab") + bpe_trainer() + identity_normalizer();
  const SentencePieceTokenizer tokenizer(model, "m");
  const std::string text = "cab uc </s> ccc";
  const std::vector<int32_t> ids = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.decode(ids), text);
  for (const int32_t id : ids) EXPECT_FALSE(tokenizer.token_bytes(id).empty()) << id;
}

TEST(SentencePieceModel, BlanksThatAreRemovedOrKeptComeBack) {
  // Removal of blanks, and blanks that are not escaped: places where text and pieces disagree.
  for (const std::string& more : {number_field(4, 1), number_field(5, 0)}) {
    const SentencePieceTokenizer tokenizer(usual_pieces() + piece_field("a") + piece_field(" a") +
                                               piece_field("\xE2\x96\x81"
                                                           "a") +
                                               bpe_trainer() + identity_normalizer(more),
                                           "m");
    for (const std::string& text : {"  a  a "s, " "s,
                                    "a a\xE2\x96\x81"
                                    "a"s})
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

}  // namespace
}  // namespace dcformer
