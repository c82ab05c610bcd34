#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dcformer/io/tensor_source.h"

namespace dcformer {

/// A file of tensors as PyTorch's torch.save writes it (`pytorch_model.bin`): a zip archive of a
/// pickle and one member a storage (since 1.6), or the older form, pickles followed by the storages
/// (torch/serialization.py, _save and _legacy_save). Tensors that are not contiguous are read
/// through their strides. Throws Error, naming the file and the place, for anything that does not
/// hold; nothing in the file is executed (see Pickle, read_torch_state, ZipArchive).
std::unique_ptr<TensorSource> open_torch_file(const std::string& path);

/// The same for bytes in memory, kept alive by `owner`; `where` names them in messages.
std::unique_ptr<TensorSource> parse_torch_file(std::shared_ptr<const std::byte> owner, size_t size,
                                               const std::string& where);

}  // namespace dcformer
