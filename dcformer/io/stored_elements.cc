#include "dcformer/io/stored_elements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "dcformer/base/check.h"
#include "dcformer/ops/convert_kernels.h"
#include "dcformer/ops/half_kernels.h"

namespace dcformer {
namespace {

constexpr int64_t kBlock = 1024;

// A block of stored elements, aligned for each of their types, and as f32.
struct Block {
  alignas(64) std::array<std::byte, kBlock * 8> stored;
  alignas(64) std::array<float, kBlock> values;
};

void gather(const std::byte* from, int64_t stride, size_t size, int64_t n, std::byte* to) {
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * size);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(to + static_cast<size_t>(i) * size, from + i * stride * static_cast<int64_t>(size),
                size);
}

template <typename T>
void cast_block(Block& block, int64_t n) {
  const auto* stored = reinterpret_cast<const T*>(block.stored.data());
  std::transform(stored, stored + n, block.values.data(),
                 [](T value) { return static_cast<float>(value); });
}

void widen_block(DType stored, Block& block, int64_t n) {
  switch (stored) {
    case DType::f64:
      return cast_block<double>(block, n);
    case DType::f32:
      return cast_block<float>(block, n);
    case DType::f16:
      return widen_f16(reinterpret_cast<const Float16*>(block.stored.data()), block.values.data(),
                       n);
    case DType::bf16:
      return widen_bf16(reinterpret_cast<const BFloat16*>(block.stored.data()), block.values.data(),
                        n);
    case DType::i64:
      return cast_block<int64_t>(block, n);
    case DType::i32:
      return cast_block<int32_t>(block, n);
    case DType::i16:
      return cast_block<int16_t>(block, n);
    case DType::i8:
      return cast_block<int8_t>(block, n);
    case DType::u8:
    // A byte of a file need not be a valid bool.
    case DType::boolean:
      return cast_block<uint8_t>(block, n);
  }
}

void store_block(const float* values, const ElementTarget& to) {
  if (to.dtype == DType::f32) {
    std::memcpy(to.data, values, static_cast<size_t>(to.n) * sizeof(float));
  } else {
    round_to_bf16(values, reinterpret_cast<BFloat16*>(to.data), to.n);
  }
}

}  // namespace

ElementTarget::ElementTarget(DType type, void* memory, int64_t count)
    : dtype(type), data(static_cast<std::byte*>(memory)), n(count) {
  require(type == DType::f32 || type == DType::bf16, "read: result is {}, expected f32 or bf16",
          name_of(type));
}

ElementTarget ElementTarget::part(int64_t begin, int64_t count) const {
  return {dtype, data + begin * static_cast<int64_t>(size_of(dtype)), count};
}

void read_elements(DType stored, const std::byte* from, int64_t stride, const ElementTarget& to) {
  const size_t size = size_of(stored);
  if (stored == to.dtype) return gather(from, stride, size, to.n, to.data);
  Block block;
  for (int64_t i = 0; i < to.n; i += kBlock) {
    const int64_t n = std::min(kBlock, to.n - i);
    gather(from + i * stride * static_cast<int64_t>(size), stride, size, n, block.stored.data());
    widen_block(stored, block, n);
    store_block(block.values.data(), to.part(i, n));
  }
}

void fill_elements(float value, const ElementTarget& to) {
  if (to.dtype == DType::f32) {
    std::fill_n(reinterpret_cast<float*>(to.data), to.n, value);
  } else {
    std::fill_n(reinterpret_cast<BFloat16*>(to.data), to.n, BFloat16(value));
  }
}

int64_t store_elements(std::span<const float> from, DType stored, std::byte* to) {
  const int64_t n = std::ssize(from);
  if (stored == DType::f16) return round_to_f16(from.data(), reinterpret_cast<Float16*>(to), n);
  const ElementTarget target(stored, to, n);
  store_block(from.data(), target);
  if (stored == DType::f32) return 0;
  const auto* rounded = reinterpret_cast<const BFloat16*>(to);
  int64_t n_overflow = 0;
  for (int64_t i = 0; i < n; ++i)
    n_overflow += (rounded[i].bits & 0x7fff) == 0x7f80 && std::isfinite(from[i]) ? 1 : 0;
  return n_overflow;
}

}  // namespace dcformer
