#include "dcformer/io/tensor_source.h"

#include <functional>
#include <numeric>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

int64_t product(std::span<const int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

TensorSource::TensorSource(std::string where, std::vector<StoredTensor> tensors,
                           std::vector<std::string> warnings)
    : where_(std::move(where)), tensors_(std::move(tensors)), warnings_(std::move(warnings)) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [found, added] = index_.emplace(tensors_[i].name, i);
    require(added, "{}: two tensors are called '{}'", where_, tensors_[i].name);
  }
}

const StoredTensor* TensorSource::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

size_t TensorSource::index_of(std::string_view name) const {
  const auto found = index_.find(name);
  require(found != index_.end(), "{}: no tensor '{}'", where_, name);
  return found->second;
}

void TensorSource::read(std::string_view name, int64_t begin, const ElementTarget& to) const {
  const size_t index = index_of(name);
  const int64_t numel = tensors_[index].shape.numel();
  require(begin >= 0 && to.n >= 0 && begin <= numel && to.n <= numel - begin,
          "{}: tensor '{}' has {} elements, {} from {} on were asked for", tensors_[index].file,
          name, numel, to.n, begin);
  if (to.n > 0) read_range(index, begin, to);
}

void TensorSource::read_slice(std::string_view name, int axis, int64_t at,
                              const ElementTarget& to) const {
  const size_t index = index_of(name);
  const Shape& shape = tensors_[index].shape;
  require(axis >= 0 && axis < shape.rank() && at >= 0 && at < shape[axis],
          "{}: tensor '{}' of shape {} has no index {} on axis {}", tensors_[index].file, name,
          to_string(shape), at, axis);
  require(to.n == shape.numel() / shape[axis],
          "{}: tensor '{}': a slice has {} elements, {} were asked for", tensors_[index].file, name,
          shape.numel() / shape[axis], to.n);
  if (to.n > 0) read_axis(index, axis, at, to);
}

void TensorSource::read_axis(size_t index, int axis, int64_t at, const ElementTarget& to) const {
  const std::span<const int64_t> dims = tensors_[index].shape.dims();
  const int64_t extent = dims[static_cast<size_t>(axis)];
  const int64_t inner = product(dims.subspan(static_cast<size_t>(axis) + 1));
  for (int64_t outer = 0; outer < to.n / inner; ++outer)
    read_range(index, (outer * extent + at) * inner, to.part(outer * inner, inner));
}

std::optional<std::span<const std::byte>> TensorSource::bytes(std::string_view name) const {
  const size_t index = index_of(name);
  const std::shared_ptr<const std::byte> begin = contiguous(index);
  if (begin == nullptr) return std::nullopt;
  return std::span(begin.get(), stored_bytes(tensors_[index]));
}

Tensor TensorSource::mapped(std::string_view name) const {
  const size_t index = index_of(name);
  const StoredTensor& tensor = tensors_[index];
  const std::shared_ptr<const std::byte> begin = contiguous(index);
  if (begin == nullptr || reinterpret_cast<uintptr_t>(begin.get()) % size_of(tensor.dtype) != 0)
    return {};
  return Tensor::adopt(std::const_pointer_cast<std::byte>(begin), tensor.dtype, tensor.shape);
}

size_t stored_bytes(const StoredTensor& tensor) {
  return static_cast<size_t>(tensor.shape.numel()) * size_of(tensor.dtype);
}

}  // namespace dcformer
