#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace dcformer {

/// The extents of a tensor, at most 8 of them, each >= 0. No dimensions: a single element.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  /// Throws Error for more than 8 dimensions, a negative one, or a product beyond 2^62.
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  /// Extent i; negative i counts from the end. Throws Error when there is no such dimension.
  int64_t operator[](int i) const;
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  /// The product of all extents.
  int64_t numel() const { return numel_; }

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
  int64_t numel_ = 1;
};

/// "[2,3,4]".
std::string to_string(const Shape& shape);

}  // namespace dcformer
