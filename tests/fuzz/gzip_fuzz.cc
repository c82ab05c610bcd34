// Gzip data: an error, or a text, in bounded memory and time.

#include <string_view>

#include "dcformer/io/text_file.h"
#include "tests/fuzz/only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view packed(reinterpret_cast<const char*>(data), size);
  dcformer::test::only_errors([&] {
    // Deflate packs no more than 1032 times.
    dcformer::test::must_hold(dcformer::unpack_gzip(packed, "input").size() <= 1032 * size);
  });
  return 0;
}
