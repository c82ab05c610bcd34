#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// What the names mean that a pickle of tensors may mention. Nothing is ever looked up elsewhere.
enum class PickleGlobal : uint8_t {
  rebuild_tensor,     // torch._utils._rebuild_tensor: storage, offset, size, stride
  rebuild_tensor_v2,  // the same and requires_grad, hooks, metadata
  rebuild_tensor_v3,  // the same with the element type behind the hooks
  rebuild_parameter,  // tensor, requires_grad, hooks
  ordered_dict,
  size,             // torch.Size: a tuple
  typed_storage,    // torch.FloatStorage …
  untyped_storage,  // torch.storage.UntypedStorage: bytes
  element_type,     // torch.float32 …
};

struct AllowedGlobal {
  PickleGlobal meaning;
  std::string_view module;
  std::string_view name;
  /// Of storages and element types.
  DType dtype = DType::u8;
};

/// Null when tensor files have no use for it.
const AllowedGlobal* find_allowed_global(std::string_view module, std::string_view name);

/// The name of a pickle opcode as in Python's pickletools, and its byte: "INST (0x69)".
std::string opcode_name(uint8_t opcode);

}  // namespace dcformer
