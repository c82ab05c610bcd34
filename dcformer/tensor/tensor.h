#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dcformer/base/context.h"
#include "dcformer/tensor/dtype.h"
#include "dcformer/tensor/shape.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// Where a tensor's memory lies.
enum class Device : uint8_t { cpu };

/// A dense array in row-major order: type, shape, device and a shared buffer. Copies share the
/// buffer.
class Tensor {
 public:
  Tensor() = default;

  /// Uninitialised memory from the Context's allocator.
  static Tensor empty(Context& context, DType dtype, const Shape& shape);
  /// The same, all bytes 0.
  static Tensor zeros(Context& context, DType dtype, const Shape& shape);
  /// Foreign memory: `buffer` points to the first element and its deleter releases it (a mapped
  /// file, another library's array). It must hold shape.numel() elements.
  static Tensor adopt(std::shared_ptr<std::byte> buffer, DType dtype, const Shape& shape);

  bool defined() const { return buffer_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  Device device() const { return device_; }
  int64_t numel() const { return shape_.numel(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype_); }
  const std::shared_ptr<std::byte>& buffer() const { return buffer_; }
  void* raw() const { return buffer_.get(); }

  /// The elements. Throws Error when T is not the tensor's type.
  template <typename T>
  T* data() const {
    require_dtype("tensor", dtype_, dtype_of<T>());
    return reinterpret_cast<T*>(buffer_.get());
  }
  template <typename T>
  std::span<T> span() const {
    return {data<T>(), static_cast<size_t>(numel())};
  }

  /// The same elements in another shape. Throws Error when the counts differ.
  Tensor reshape(const Shape& shape) const;

  /// The tensor as a matrix: the last dimension in columns, all others flattened to rows.
  Matrix matrix() const;
  /// The tensor `[tokens, heads·head_dim]` as heads.
  Heads heads(int64_t n_head) const;

 private:
  DType dtype_ = DType::f32;
  Device device_ = Device::cpu;
  Shape shape_;
  std::shared_ptr<std::byte> buffer_;
};

}  // namespace dcformer
