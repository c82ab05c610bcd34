#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// Where a read puts n elements, one behind the other: f32 or bf16.
struct ElementTarget {
  DType dtype = DType::f32;
  std::byte* data = nullptr;
  int64_t n = 0;

  ElementTarget(std::span<float> to)  // NOLINT(google-explicit-constructor)
      : dtype(DType::f32), data(reinterpret_cast<std::byte*>(to.data())), n(std::ssize(to)) {}
  ElementTarget(std::span<BFloat16> to)  // NOLINT(google-explicit-constructor)
      : dtype(DType::bf16), data(reinterpret_cast<std::byte*>(to.data())), n(std::ssize(to)) {}
  /// Throws Error when the type is neither f32 nor bf16.
  ElementTarget(DType dtype, void* data, int64_t n);

  /// The n elements from `begin` on.
  ElementTarget part(int64_t begin, int64_t count) const;
};

/// Fills `to` with stored elements of any type, `stride` elements apart from `from` on, which need
/// not be aligned. f16, bf16 and f32 widen exactly; f64 and whole numbers are rounded to f32;
/// then, for a target of bf16, to bf16 (to nearest even, both).
void read_elements(DType stored, const std::byte* from, int64_t stride, const ElementTarget& to);

/// Fills `to` with one value.
void fill_elements(float value, const ElementTarget& to);

/// Rounds f32 elements to f32, bf16 or f16 in `to` (of n elements' bytes). Returns how many finite
/// values became infinite. Throws Error for another type.
int64_t store_elements(std::span<const float> from, DType stored, std::byte* to);

}  // namespace dcformer
