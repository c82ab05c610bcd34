#pragma once

#include <memory>
#include <string>

#include "dcformer/io/tensor_source.h"
#include "dcformer/model/config.h"

namespace dcformer {

/// The parameters of a checkpoint of the published JAX code (MaxText: Orbax, one zarr array a leaf)
/// under the names and in the shapes that `config` gives them (parameter_specs). `path` is what
/// find_orbax_arrays takes; of the leaves those under `params` are read, the optimizer's are not
/// looked at.
///
/// Leaves below `params.decoder.layers` stack the blocks of layers on axis 1: index j of a leaf of
/// module `…_i` is layer j·B + i, where B is the number of layers in a block. Matrices are stored
/// [in, out] and come out as [out, in]; query, key and value are joined to wqkv; of a vocabulary
/// that is padded the first `vocab_size` rows are taken. A read assembles the whole tensor in f32
/// beside its result, so read tensors as wholes.
///
/// Throws Error, naming the leaf, for one that is missing or mis-shaped, for a number of layers
/// other than the configuration's, and for parameters that MaxText has no leaf for. Leaves of no
/// use to the configuration are named in a warning.
std::unique_ptr<TensorSource> open_maxtext(const std::string& path, const ModelConfig& config);

}  // namespace dcformer
