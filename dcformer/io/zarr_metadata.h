#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dcformer/tensor/dtype.h"
#include "dcformer/tensor/shape.h"

namespace dcformer {

/// What the `.zarray` file of an array says (the zarr storage specification, version 2): a grid of
/// chunks, each in a file of its own, the last ones of an axis padded to the full size.
struct ZarrMetadata {
  Shape shape;
  /// The extents of a chunk, one for each axis.
  Shape chunk;
  DType dtype = DType::f32;
  /// Chunks are zstd frames; otherwise the bytes as they are.
  bool zstd = false;
  char separator = '.';
  /// The elements of chunks that have no file.
  float fill = 0;

  size_t chunk_bytes() const { return static_cast<size_t>(chunk.numel()) * size_of(dtype); }
};

/// Throws Error, naming `where` and the key, for anything else than such a file: another format,
/// order F (of more than one axis), filters, other compressors and types, chunks with an extent
/// below 1 or of another rank than the array, arrays and chunks of more than 2^40 elements.
ZarrMetadata parse_zarr_metadata(std::string_view text, const std::string& where);

/// The name of a chunk's file, below the array's folder: "1.0.2" ("0" where there are no axes).
std::string chunk_name(const ZarrMetadata& metadata, const std::vector<int64_t>& place);

}  // namespace dcformer
