// Encoding and decoding is the identity, at once and as a stream, for any bytes.

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "dcformer/base/utf8.h"
#include "dcformer/text/byte_tokenizer.h"
#include "dcformer/text/sentencepiece_tokenizer.h"
#include "dcformer/text/stream_decoder.h"
#include "tests/fuzz/only_errors.h"

namespace dcformer::test {
namespace {

std::unique_ptr<Tokenizer>& trained_tokenizer() {
  static std::unique_ptr<Tokenizer> tokenizer;
  return tokenizer;
}

// The places where a character, or a sequence that is none, begins; and the end, unless the text
// ends within a character.
std::set<size_t> boundaries_of(std::string_view text) {
  std::set<size_t> boundaries = {0};
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_front(text.substr(i));
    if (step.front == Utf8Front::cut_short) break;
    i += step.length;
    boundaries.insert(i);
  }
  return boundaries;
}

void check(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  must_hold(tokenizer.decode(ids) == text);
  const std::set<size_t> boundaries = boundaries_of(text);
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) {
    must_hold(id != tokenizer.end_of_document() && !tokenizer.token_bytes(id).empty());
    streamed += decoder.push(id);
    must_hold(boundaries.count(streamed.size()) == 1);
  }
  must_hold(streamed + decoder.finish() == text);
}

}  // namespace
}  // namespace dcformer::test

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text +=
        "It was a truth, 天地玄黄 — naïve <s> cafés and\ttabs; the other one \xF0\x9F\x98\x80\n";
  dcformer::test::trained_tokenizer() = dcformer::SentencePieceTokenizer::train({text}, 340);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  dcformer::test::check(dcformer::ByteTokenizer(), text);
  dcformer::test::check(*dcformer::test::trained_tokenizer(), text);
  return 0;
}
