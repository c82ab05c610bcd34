// What a zarr array says about itself, and a chunk of it: the text up to the first byte 0, then the
// chunk's file.

#include <algorithm>
#include <string_view>

#include "dcformer/io/zarr_chunk.h"
#include "dcformer/io/zarr_metadata.h"
#include "tests/fuzz/exact_copy.h"
#include "tests/fuzz/only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dcformer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(text.find('\0'), size);
  test::only_errors([&] {
    const ZarrMetadata metadata = parse_zarr_metadata(text.substr(0, end), "input");
    test::must_hold(metadata.shape.rank() == metadata.chunk.rank() && metadata.chunk.numel() >= 1);
    test::must_hold(!chunk_name(metadata, std::vector<int64_t>(3, 7)).empty());
    if (end == size) return;
    const size_t n_chunk = size - end - 1;
    ZarrChunk chunk(test::exact_copy(data + end + 1, n_chunk), n_chunk, metadata.zstd,
                    metadata.chunk_bytes(), "input");
    for (size_t left = metadata.chunk_bytes(); left > 0;) {
      const size_t n = std::min<size_t>(left, 1 << 16);
      test::must_hold(chunk.next(n).size() == n);
      left -= n;
    }
  });
  return 0;
}
