#pragma once

#include <string>

namespace dcformer {

/// A model folder in words: architecture, parameters by group, bytes in memory and in the cache,
/// windows by layer, what its weights' files hold and what is wrong with them, tokenizer. Of the
/// weights only a sample is read, to tell which form of the composition's counts.
std::string model_report(const std::string& folder);

}  // namespace dcformer
