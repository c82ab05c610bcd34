#pragma once

#include <string>

namespace dcformer {

/// A model folder in words: architecture, parameters by group, bytes in memory and in the cache,
/// windows by layer, tokenizer. The weights are not read, only the tensors' shapes.
std::string model_report(const std::string& folder);

}  // namespace dcformer
