#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "dcformer/base/error.h"

namespace dcformer {

/// The element types of tensors and of tensor files.
enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

/// Bytes of one element.
size_t size_of(DType dtype);

/// The type's name as in the enumeration, for messages: "f32".
std::string_view name_of(DType dtype);

/// Brain floating point: the upper half of an f32.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN (quiet), infinities stay.
  explicit BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffff) > 0x7f800000) {
      bits = static_cast<uint16_t>((word >> 16) | 0x40);
    } else {
      bits = static_cast<uint16_t>((word + 0x7fff + ((word >> 16) & 1)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};
static_assert(sizeof(BFloat16) == 2 && std::is_trivial_v<BFloat16>);

/// IEEE 754 half precision, for reading files. Conversion to f32 is exact.
struct Float16 {
  uint16_t bits;
  explicit operator float() const;
};
static_assert(sizeof(Float16) == 2 && std::is_trivial_v<Float16>);

/// The DType of a C++ type.
template <typename T>
constexpr DType dtype_of() {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, double>) return DType::f64;
  if constexpr (std::is_same_v<U, float>) return DType::f32;
  if constexpr (std::is_same_v<U, Float16>) return DType::f16;
  if constexpr (std::is_same_v<U, BFloat16>) return DType::bf16;
  if constexpr (std::is_same_v<U, int64_t>) return DType::i64;
  if constexpr (std::is_same_v<U, int32_t>) return DType::i32;
  if constexpr (std::is_same_v<U, int16_t>) return DType::i16;
  if constexpr (std::is_same_v<U, int8_t>) return DType::i8;
  if constexpr (std::is_same_v<U, uint8_t>) return DType::u8;
  if constexpr (std::is_same_v<U, bool>) return DType::boolean;
}

/// Throws Error: "WHAT: expected EXPECTED, got bf16". (Out of line: what is installed needs no
/// formatting library.)
[[noreturn]] void fail_dtype(std::string_view what, DType got, std::string_view expected);
inline void require_dtype(std::string_view what, DType got, DType expected) {
  if (got != expected) [[unlikely]]
    fail_dtype(what, got, name_of(expected));
}

/// Calls f(T{}) with the static type of a compute dtype (f32 or bf16): the one place where a
/// run-time type of activations becomes a static one. Throws Error for another type, naming
/// `where`.
template <typename F>
decltype(auto) visit_dtype(DType dtype, std::string_view where, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f64:
    case DType::f16:
    case DType::i64:
    case DType::i32:
    case DType::i16:
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      break;
  }
  fail_dtype(where, dtype, "f32 or bf16");
}

}  // namespace dcformer
