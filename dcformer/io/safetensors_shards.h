#pragma once

#include <string>
#include <vector>

#include "dcformer/io/safetensors.h"

namespace dcformer {

/// Writes tensors as the transformers library does into a folder that exists, with the metadata
/// `{"format": "pt"}`: `model.safetensors`; or, when they take more than `max_shard_bytes`,
/// `model-00001-of-0000N.safetensors` and so on, each of at most that size (a larger tensor alone
/// in one), and last of all `model.safetensors.index.json`. The order is that of the plan, no more
/// than one tensor is held, and the same tensors give the same bytes. Throws Error like
/// write_safetensors, for the space of all files before the first byte; and where a
/// `model.safetensors` stands that readers would take for the shards.
WriteSummary write_safetensors_shards(const std::string& folder,
                                      const std::vector<PlannedTensor>& plan,
                                      const TensorGiver& give, uint64_t max_shard_bytes);

}  // namespace dcformer
