#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dcformer/io/tensor_source.h"

namespace dcformer {

/// What `model.safetensors.index.json` or `pytorch_model.bin.index.json` says (the format of the
/// transformers library): `weight_map` gives the file of each tensor; `metadata` is not read.
struct ShardIndex {
  std::map<std::string, std::string> file_of;

  /// The files, each once, in the order of their names.
  std::vector<std::string> files() const;
};

/// Throws Error, naming `where` and the tensor, for anything else than such an index, an index of
/// no tensors, and files that are no plain names inside the folder.
ShardIndex parse_shard_index(std::string_view text, const std::string& where);

/// The tensors of all shards beside an index file, as one source. Throws Error for shards that are
/// missing, of an unknown ending (.safetensors, .bin), lack a tensor that the index gives them, or
/// hold one that another shard holds too. Tensors that the index does not name are left out, with a
/// warning that names them.
std::unique_ptr<TensorSource> open_shards(const std::string& index_path);

/// Opens one file by its ending: .safetensors, or .bin and .pt for those of PyTorch. Throws Error
/// for another ending.
std::unique_ptr<TensorSource> open_tensor_file(const std::string& path);

}  // namespace dcformer
