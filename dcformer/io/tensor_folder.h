#pragma once

#include <memory>
#include <string>

#include "dcformer/io/tensor_source.h"

namespace dcformer {

/// The tensors of a model folder of Hugging Face's form. Of what it may hold, the first of these
/// that is there is read: `model.safetensors`, `model.safetensors.index.json` with its shards,
/// `pytorch_model.bin`, `pytorch_model.bin.index.json` with its shards. Throws Error, saying what
/// was looked for, when there is none; and what open_tensor_file and open_shards throw.
std::unique_ptr<TensorSource> open_tensor_folder(const std::string& folder);

}  // namespace dcformer
