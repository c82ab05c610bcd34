// tokenizer.json from strangers: refused, or of use without harm.

#include <string>

#include "dcformer/text/huggingface_tokenizer.h"
#include "tests/fuzz/only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dcformer;
  test::only_errors([&] {
    const auto tokenizer = HuggingFaceTokenizer::parse(
        std::string(reinterpret_cast<const char*>(data), size), "input");
    for (const bool on : {false, true}) {
      const auto ids = tokenizer->encode_with("aaa  The\n\n<|end|> caf\xC3\xA9 12\xFF", {on, on});
      tokenizer->decode(ids, {on});
      for (const int32_t id : ids) test::must_hold(id >= 0 && id < tokenizer->vocab_size());
    }
  });
  return 0;
}
