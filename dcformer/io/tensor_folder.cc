#include "dcformer/io/tensor_folder.h"

#include <fmt/ranges.h>

#include <filesystem>

#include "dcformer/base/check.h"
#include "dcformer/io/tensor_shards.h"

namespace dcformer {
namespace {

constexpr const char* kFiles[] = {"model.safetensors", "model.safetensors.index.json",
                                  "pytorch_model.bin", "pytorch_model.bin.index.json"};

}  // namespace

std::unique_ptr<TensorSource> open_tensor_folder(const std::string& folder) {
  std::error_code error;
  require(std::filesystem::is_directory(folder, error), "{}: is no folder", folder);
  for (const char* name : kFiles) {
    const std::string path = folder + "/" + name;
    if (!std::filesystem::exists(path, error)) continue;
    return path.ends_with(".index.json") ? open_shards(path) : open_tensor_file(path);
  }
  fail("{}: holds no tensors; looked for {}", folder, fmt::join(kFiles, ", "));
}

}  // namespace dcformer
