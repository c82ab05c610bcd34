#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dcformer {

/// The decoded bytes of one chunk of a zarr array, piece by piece from the first to the last, so
/// that a chunk of gigabytes takes no memory but the piece and the decoder's window.
class ZarrChunk {
 public:
  /// `owner` holds the chunk's file of `size` bytes; `decoded` is how many bytes must come out of
  /// it. Throws Error, naming `where`, when the file cannot hold as many.
  ZarrChunk(std::shared_ptr<const std::byte> owner, size_t size, bool zstd, size_t decoded,
            std::string where);
  ~ZarrChunk();
  ZarrChunk(const ZarrChunk&) = delete;
  ZarrChunk& operator=(const ZarrChunk&) = delete;

  /// The next n bytes, valid until the next call. Throws Error for data that is broken or ends too
  /// early, and with the last piece for more data than expected.
  std::span<const std::byte> next(size_t n);

 private:
  struct Decoder;

  std::span<const std::byte> decode(size_t n);
  void require_end();

  std::shared_ptr<const std::byte> owner_;
  std::span<const std::byte> rest_;
  size_t left_;
  std::string where_;
  std::unique_ptr<Decoder> decoder_;  // of zstd chunks
};

}  // namespace dcformer
