#pragma once

#include <memory>
#include <string>

#include "dcformer/io/tensor_source.h"

namespace dcformer {

/// The arrays (zarr, version 2) that are folders with a `.zarray` in `folder`, under the folders'
/// names; only those that begin with `prefix`, others are not even looked at. Ranges of whole
/// chunks on the first axis, and slices, are read without decoding a chunk twice; any read decodes
/// the whole of each chunk that it touches, in pieces. Throws Error for a folder without such
/// arrays (saying so where it is of a newer form) and what parse_zarr_metadata throws.
std::unique_ptr<TensorSource> open_zarr_folder(const std::string& folder,
                                               const std::string& prefix = "");

/// The folder of arrays in an Orbax checkpoint: `path` itself, or below it `state`, `items` or
/// `default`; or that of the highest numbered step, in `path` or in its `checkpoint` or
/// `checkpoints`. Throws Error, saying what was looked for, when there is none.
std::string find_orbax_arrays(const std::string& path);

}  // namespace dcformer
