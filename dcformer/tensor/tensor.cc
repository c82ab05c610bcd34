#include "dcformer/tensor/tensor.h"

#include "dcformer/base/check.h"

#include <cstring>

namespace dcformer {

Tensor Tensor::empty(Context& context, DType dtype, const Shape& shape) {
  return adopt(context.allocator().allocate(static_cast<size_t>(shape.numel()) * size_of(dtype)),
               dtype, shape);
}

Tensor Tensor::zeros(Context& context, DType dtype, const Shape& shape) {
  Tensor tensor = empty(context, dtype, shape);
  std::memset(tensor.raw(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::adopt(std::shared_ptr<std::byte> buffer, DType dtype, const Shape& shape) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  tensor.buffer_ = std::move(buffer);
  return tensor;
}

Tensor Tensor::reshape(const Shape& shape) const {
  require(shape.numel() == numel(), "cannot reshape {} to {}", to_string(shape_), to_string(shape));
  return adopt(buffer_, dtype_, shape);
}

Matrix Tensor::matrix() const {
  const int64_t cols = shape_.rank() == 0 ? 1 : shape_[-1];
  return {raw(), dtype_, cols == 0 ? 0 : numel() / cols, cols, cols};
}

Heads Tensor::heads(int64_t n_head) const {
  const Matrix m = matrix();
  require(n_head > 0 && m.cols % n_head == 0, "cannot cut tensor {} into {} heads",
          to_string(shape_), n_head);
  return {m, 0, n_head, m.cols / n_head};
}

}  // namespace dcformer
