// SentencePiece models from strangers: refused, or of use without harm.

#include <algorithm>
#include <string>

#include "dcformer/text/sentencepiece_tokenizer.h"
#include "tests/fuzz/only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dcformer;
  test::only_errors([&] {
    const SentencePieceTokenizer tokenizer(std::string(reinterpret_cast<const char*>(data), size),
                                           "input");
    // A model that is accepted gives every byte back. The input's own bytes hold its pieces.
    const std::string pieces(reinterpret_cast<const char*>(data), std::min<size_t>(size, 512));
    for (const std::string& text : {std::string("aaa  the\n\n<s></s>\xE2\x96\x81\xFF"), pieces})
      test::must_hold(tokenizer.decode(tokenizer.encode(text)) == text);
    test::must_hold(tokenizer.end_of_document() < tokenizer.vocab_size());
  });
  return 0;
}
