#include "dcformer/io/zarr_array.h"

#include <algorithm>
#include <filesystem>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/mapped_file.h"
#include "dcformer/io/zarr_chunk.h"

namespace dcformer {
namespace {

// Elements that are decoded at once.
constexpr int64_t kPiece = int64_t{1} << 17;

std::vector<int64_t> axes_or_one(const Shape& shape) {
  if (shape.rank() == 0) return {1};
  return {shape.dims().begin(), shape.dims().end()};
}

// Steps to the next index of a region in row-major order, all axes but the last `n_inner`; false
// behind the last one.
bool advance(std::vector<int64_t>& index, const ZarrArray::Region& region, size_t n_inner) {
  for (size_t axis = index.size() - n_inner; axis-- > 0;) {
    if (++index[axis] < region.end[axis]) return true;
    index[axis] = region.begin[axis];
  }
  return false;
}

// The part of a region inside the chunk whose first element is at `origin`.
ZarrArray::Region inside(const ZarrArray::Region& region, const std::vector<int64_t>& origin,
                         const std::vector<int64_t>& chunk) {
  ZarrArray::Region part = region;
  for (size_t i = 0; i < origin.size(); ++i) {
    part.begin[i] = std::max(region.begin[i], origin[i]);
    part.end[i] = std::min(region.end[i], origin[i] + chunk[i]);
  }
  return part;
}

void visit_fill(const ZarrArray::Region& part, const ZarrArray::Run& run) {
  std::vector<int64_t> index = part.begin;
  do {
    run(index, nullptr, part.end.back() - part.begin.back());
  } while (advance(index, part, 1));
}

/// Goes through a chunk's elements in their order in the file.
class ChunkWalk {
 public:
  ChunkWalk(const ZarrArray::Region& part, const std::vector<int64_t>& origin,
            const std::vector<int64_t>& chunk, size_t element_size)
      : part_(part), origin_(origin), chunk_(chunk), size_(element_size), index_(origin) {}

  // The elements from `at` on that a piece of the chunk holds.
  void piece(int64_t at, std::span<const std::byte> bytes, const ZarrArray::Run& run) {
    const int64_t end = at + static_cast<int64_t>(bytes.size() / size_);
    const std::byte* data = bytes.data();
    while (at < end) {
      const int64_t column = at % chunk_.back();
      const int64_t n = std::min(chunk_.back() - column, end - at);
      if (enter_row(at / chunk_.back())) row(column, n, data, run);
      data += static_cast<size_t>(n) * size_;
      at += n;
    }
  }

 private:
  // Sets the index to a row's; false when the region has nothing of it.
  bool enter_row(int64_t row) {
    bool inside = true;
    for (size_t axis = chunk_.size() - 1; axis-- > 0;) {
      index_[axis] = origin_[axis] + row % chunk_[axis];
      row /= chunk_[axis];
      inside = inside && index_[axis] >= part_.begin[axis] && index_[axis] < part_.end[axis];
    }
    return inside;
  }

  void row(int64_t column, int64_t n, const std::byte* data, const ZarrArray::Run& run) {
    const int64_t first = origin_.back() + column;
    const int64_t begin = std::max(first, part_.begin.back());
    const int64_t end = std::min(first + n, part_.end.back());
    if (begin >= end) return;
    index_.back() = begin;
    run(index_, data + static_cast<size_t>(begin - first) * size_, end - begin);
  }

  const ZarrArray::Region& part_;
  const std::vector<int64_t>& origin_;
  const std::vector<int64_t>& chunk_;
  size_t size_;
  std::vector<int64_t> index_;
};

}  // namespace

ZarrArray::ZarrArray(std::string folder)
    : folder_(std::move(folder)),
      metadata_(parse_zarr_metadata(read_file(folder_ + "/.zarray"), folder_ + "/.zarray")),
      shape_(axes_or_one(metadata_.shape)),
      chunk_(axes_or_one(metadata_.chunk)) {}

ZarrArray::Region ZarrArray::whole() const {
  return {std::vector<int64_t>(shape_.size(), 0), shape_};
}

void ZarrArray::visit(const Region& region, const Run& run) const {
  Region grid = region;
  for (size_t i = 0; i < chunk_.size(); ++i) {
    if (region.begin[i] >= region.end[i]) return;
    grid.begin[i] = region.begin[i] / chunk_[i];
    grid.end[i] = (region.end[i] - 1) / chunk_[i] + 1;
  }
  std::vector<int64_t> place = grid.begin;
  do {
    visit_chunk(region, place, run);
  } while (advance(place, grid, 0));
}

void ZarrArray::visit_chunk(const Region& region, const std::vector<int64_t>& place,
                            const Run& run) const {
  std::vector<int64_t> origin = place;
  for (size_t i = 0; i < origin.size(); ++i) origin[i] *= chunk_[i];
  const Region part = inside(region, origin, chunk_);
  const std::string path =
      folder_ + "/" +
      chunk_name(metadata_, metadata_.shape.rank() == 0 ? std::vector<int64_t>() : place);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return visit_fill(part, run);
  const MappedFile file(path);
  ZarrChunk data(file.owner(), file.bytes().size(), metadata_.zstd, metadata_.chunk_bytes(), path);
  const size_t size = size_of(metadata_.dtype);
  ChunkWalk walk(part, origin, chunk_, size);
  for (int64_t at = 0; at < metadata_.chunk.numel(); at += kPiece) {
    const int64_t n = std::min(kPiece, metadata_.chunk.numel() - at);
    walk.piece(at, data.next(static_cast<size_t>(n) * size), run);
  }
}

}  // namespace dcformer
