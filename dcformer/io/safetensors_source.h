#pragma once

#include <memory>
#include <string>

#include "dcformer/io/tensor_source.h"

namespace dcformer {

/// A safetensors file (see SafetensorsFile, which says what throws) as a source of tensors.
std::unique_ptr<TensorSource> open_safetensors(const std::string& path);

}  // namespace dcformer
