#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dcformer/io/pickle.h"
#include "dcformer/tensor/shape.h"

namespace dcformer {

/// What the pickle of a PyTorch file says: tensors are views of storages, whose data lies elsewhere
/// in the file.
struct TorchState {
  struct Storage {
    std::string key;
    /// Of the elements that `n_element` counts: bytes for an UntypedStorage.
    DType dtype = DType::u8;
    int64_t n_element = 0;

    uint64_t bytes() const { return static_cast<uint64_t>(n_element) * size_of(dtype); }
  };
  struct TensorView {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    /// Of each axis and of the first element, in elements of `dtype`.
    std::vector<int64_t> strides;
    int64_t offset = 0;
    size_t storage = 0;  // in `storages`

    bool is_contiguous() const;
  };
  /// All that the pickle mentions, those of other things than the tensors as well.
  std::vector<Storage> storages;
  std::vector<TensorView> tensors;
};

/// The tensors of a pickled dict by name, or, where it has none itself, of the dict that it holds
/// as `state_dict` or `model`; entries that are no tensors are left out. Throws Error, naming
/// `where` and the tensor, for anything that does not hold: no dict, no tensors, names that repeat,
/// storages that contradict each other, views that reach beyond their storage or repeat elements.
TorchState read_torch_state(const Pickle& pickle, const std::string& where);

}  // namespace dcformer
