#include "dcformer/tensor/shape.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "dcformer/base/check.h"

namespace dcformer {

Shape::Shape(std::span<const int64_t> dims) {
  require(dims.size() <= kMaxRank, "shape has {} dimensions, expected at most {}", dims.size(),
          kMaxRank);
  rank_ = static_cast<int>(dims.size());
  bool empty = false;
  for (int i = 0; i < rank_; ++i) {
    require(dims[i] >= 0, "shape [{}] has a negative dimension", fmt::join(dims, ","));
    dims_[i] = dims[i];
    empty = empty || dims[i] == 0;
  }
  if (empty) numel_ = 0;
  for (int i = 0; i < rank_ && !empty; ++i) {
    int64_t product = 0;
    const bool overflow = __builtin_mul_overflow(numel_, dims_[i], &product);
    require(!overflow && product <= int64_t{1} << 62, "shape [{}] is too large",
            fmt::join(dims, ","));
    numel_ = product;
  }
}

int64_t Shape::operator[](int i) const {
  const int index = i < 0 ? i + rank_ : i;
  require(index >= 0 && index < rank_, "shape {} has no dimension {}", to_string(*this), i);
  return dims_[index];
}

bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.dims(), ","));
}

}  // namespace dcformer
