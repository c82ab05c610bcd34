#include "dcformer/io/zarr_chunk.h"

#include <zstd.h>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

// A block of 128 KiB takes at least 4 bytes, whatever it repeats (RFC 8878, section 3.1.1.2).
constexpr size_t kMostPacked = (size_t{128} << 10) / 4;

}  // namespace

struct ZarrChunk::Decoder {
  Decoder() : stream(ZSTD_createDCtx(), &ZSTD_freeDCtx) {
    require(stream != nullptr, "zstd: no memory for a decoder");
  }

  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> stream;
  std::vector<std::byte> piece;
  /// What the library last said is still to come: 0 at the end of a frame.
  size_t hint = 1;
};

ZarrChunk::ZarrChunk(std::shared_ptr<const std::byte> owner, size_t size, bool zstd, size_t decoded,
                     std::string where)
    : owner_(std::move(owner)),
      rest_(owner_.get(), size),
      left_(decoded),
      where_(std::move(where)) {
  if (!zstd) {
    require(size == decoded, "{}: {} bytes, expected a chunk of {}", where_, size, decoded);
    return;
  }
  const unsigned long long claimed = ZSTD_getFrameContentSize(rest_.data(), size);
  require(claimed != ZSTD_CONTENTSIZE_ERROR, "{}: not zstd data", where_);
  require(claimed == ZSTD_CONTENTSIZE_UNKNOWN || claimed == decoded,
          "{}: its zstd frame claims {} bytes, expected a chunk of {}", where_, claimed, decoded);
  require(decoded / kMostPacked <= size, "{}: {} bytes of zstd data cannot hold a chunk of {}",
          where_, size, decoded);
  decoder_ = std::make_unique<Decoder>();
}

ZarrChunk::~ZarrChunk() = default;

std::span<const std::byte> ZarrChunk::next(size_t n) {
  require(n <= left_, "{}: {} bytes are left of a chunk and {} were asked for", where_, left_, n);
  left_ -= n;
  std::span<const std::byte> piece;
  if (decoder_ != nullptr) {
    piece = decode(n);
  } else {
    piece = rest_.first(n);
    rest_ = rest_.subspan(n);
  }
  if (left_ == 0 && decoder_ != nullptr) require_end();
  return piece;
}

std::span<const std::byte> ZarrChunk::decode(size_t n) {
  decoder_->piece.resize(n);
  ZSTD_outBuffer out{decoder_->piece.data(), n, 0};
  ZSTD_inBuffer in{rest_.data(), rest_.size(), 0};
  while (out.pos < n) {
    const size_t before = in.pos + out.pos;
    decoder_->hint = ZSTD_decompressStream(decoder_->stream.get(), &out, &in);
    require(ZSTD_isError(decoder_->hint) == 0, "{}: broken zstd data: {}", where_,
            ZSTD_getErrorName(decoder_->hint));
    require(in.pos + out.pos != before || out.pos == n, "{}: its zstd data ends {} bytes too early",
            where_, n - out.pos + left_);
  }
  rest_ = rest_.subspan(in.pos);
  return {decoder_->piece.data(), n};
}

// The rest of the frame (an empty last block, a checksum) holds no further bytes.
void ZarrChunk::require_end() {
  std::byte beyond{};
  ZSTD_outBuffer out{&beyond, 1, 0};
  ZSTD_inBuffer in{rest_.data(), rest_.size(), 0};
  while (decoder_->hint != 0 && out.pos == 0) {
    const size_t before = in.pos;
    decoder_->hint = ZSTD_decompressStream(decoder_->stream.get(), &out, &in);
    require(ZSTD_isError(decoder_->hint) == 0, "{}: broken zstd data: {}", where_,
            ZSTD_getErrorName(decoder_->hint));
    require(decoder_->hint == 0 || in.pos != before || out.pos != 0,
            "{}: its zstd frame is cut short", where_);
  }
  require(out.pos == 0 && in.pos == in.size, "{}: more data than the chunk has", where_);
}

}  // namespace dcformer
