#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dcformer/io/zarr_metadata.h"

namespace dcformer {

/// One zarr array: its folder of chunk files and what its `.zarray` says.
class ZarrArray {
 public:
  /// Indices from `begin` up to `end` on each axis.
  struct Region {
    std::vector<int64_t> begin;
    std::vector<int64_t> end;
  };
  /// n elements that follow each other on the last axis, the first at `index`; `data` is null where
  /// they have the fill value.
  using Run =
      std::function<void(const std::vector<int64_t>& index, const std::byte* data, int64_t n)>;

  /// Reads `.zarray`. Throws Error (see parse_zarr_metadata).
  explicit ZarrArray(std::string folder);

  const std::string& folder() const { return folder_; }
  const ZarrMetadata& metadata() const { return metadata_; }
  /// Everything. (An array without axes counts as [1].)
  Region whole() const;

  /// Calls `run` for all elements of a region, chunk by chunk. Holds one piece of a chunk at a
  /// time. Throws Error naming the chunk's file when its data does not hold.
  void visit(const Region& region, const Run& run) const;

 private:
  void visit_chunk(const Region& region, const std::vector<int64_t>& place, const Run& run) const;

  std::string folder_;
  ZarrMetadata metadata_;
  /// Those of the metadata, or [1].
  std::vector<int64_t> shape_;
  std::vector<int64_t> chunk_;
};

}  // namespace dcformer
