#include "dcformer/io/tensor_shards.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/safetensors_source.h"
#include "dcformer/io/torch_file.h"

namespace dcformer {
namespace {

constexpr size_t kNamesInMessages = 5;

using Shards = std::vector<std::unique_ptr<TensorSource>>;

// The shard that holds a tensor, and the tensor there.
struct Place {
  const TensorSource* shard;
  const StoredTensor* tensor;
};

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Shards open_all(const ShardIndex& index, const std::string& folder, const std::string& where) {
  Shards shards;
  for (const std::string& file : index.files()) {
    const std::string path = (std::filesystem::path(folder) / file).string();
    std::error_code error;
    require(std::filesystem::exists(path, error), "{}: shard '{}' is missing", where, file);
    shards.push_back(open_tensor_file(path));
  }
  return shards;
}

std::unordered_map<std::string_view, Place> find_all(const Shards& shards,
                                                     const std::string& where) {
  std::unordered_map<std::string_view, Place> places;
  for (const auto& shard : shards)
    for (const StoredTensor& tensor : shard->tensors()) {
      const auto [found, added] = places.emplace(tensor.name, Place{shard.get(), &tensor});
      require(added, "{}: tensor '{}' is both in {} and in {}", where, tensor.name,
              found->second.tensor->file, tensor.file);
    }
  return places;
}

std::vector<std::string> warnings_of(const ShardIndex& index, const Shards& shards,
                                     const std::string& where) {
  std::vector<std::string> warnings;
  std::vector<std::string> unlisted;
  for (const auto& shard : shards) {
    warnings.insert(warnings.end(), shard->warnings().begin(), shard->warnings().end());
    for (const StoredTensor& tensor : shard->tensors())
      if (index.file_of.count(tensor.name) == 0) unlisted.push_back(tensor.name);
  }
  if (unlisted.empty()) return warnings;
  const size_t n = unlisted.size();
  unlisted.resize(std::min(n, kNamesInMessages));
  warnings.push_back(fmt::format("{}: {} tensors of its shards are not listed: {}{}", where, n,
                                 fmt::join(unlisted, ", "), n > unlisted.size() ? ", …" : ""));
  return warnings;
}

class ShardedSource : public TensorSource {
 public:
  ShardedSource(const std::string& where, std::vector<StoredTensor> tensors, Shards shards,
                std::vector<const TensorSource*> shard_of, std::vector<std::string> warnings)
      : TensorSource(where, std::move(tensors), std::move(warnings)),
        shards_(std::move(shards)),
        shard_of_(std::move(shard_of)) {}

 private:
  void read_range(size_t index, int64_t begin, const ElementTarget& to) const override {
    shard_of_[index]->read(tensors()[index].name, begin, to);
  }
  void read_axis(size_t index, int axis, int64_t at, const ElementTarget& to) const override {
    shard_of_[index]->read_slice(tensors()[index].name, axis, at, to);
  }
  std::shared_ptr<const std::byte> contiguous(size_t index) const override {
    return contiguous_of(*shard_of_[index], tensors()[index].name);
  }

  Shards shards_;
  std::vector<const TensorSource*> shard_of_;
};

}  // namespace

std::vector<std::string> ShardIndex::files() const {
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  return {names.begin(), names.end()};
}

ShardIndex parse_shard_index(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  require(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
          "{}: expected an object with 'weight_map', an object", where);
  ShardIndex index;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    require(file.is_string(), "{}: weight_map '{}': expected the name of a file", where, tensor);
    const auto name = file.get<std::string>();
    require(is_plain_name(name),
            "{}: weight_map '{}': expected the plain name of a file in the same folder, got '{}'",
            where, tensor, name);
    index.file_of[tensor] = name;
  }
  require(!index.file_of.empty(), "{}: weight_map names no tensors", where);
  return index;
}

std::unique_ptr<TensorSource> open_shards(const std::string& index_path) {
  const ShardIndex index = parse_shard_index(read_file(index_path), index_path);
  const std::string folder = std::filesystem::path(index_path).parent_path().string();
  Shards shards = open_all(index, folder, index_path);
  const auto places = find_all(shards, index_path);
  std::vector<StoredTensor> tensors;
  std::vector<const TensorSource*> shard_of;
  for (const auto& [name, file] : index.file_of) {
    const auto found = places.find(name);
    require(found != places.end(), "{}: tensor '{}' is not in its shard '{}'", index_path, name,
            file);
    const StoredTensor& tensor = *found->second.tensor;
    require(std::filesystem::path(tensor.file).filename() == file,
            "{}: tensor '{}' is not in its shard '{}' but in {}", index_path, name, file,
            tensor.file);
    tensors.push_back(tensor);
    shard_of.push_back(found->second.shard);
  }
  std::vector<std::string> warnings = warnings_of(index, shards, index_path);
  return std::make_unique<ShardedSource>(index_path, std::move(tensors), std::move(shards),
                                         std::move(shard_of), std::move(warnings));
}

std::unique_ptr<TensorSource> open_tensor_file(const std::string& path) {
  if (path.ends_with(".safetensors")) return open_safetensors(path);
  require(path.ends_with(".bin") || path.ends_with(".pt"),
          "{}: expected a file that ends in .safetensors, .bin or .pt", path);
  return open_torch_file(path);
}

}  // namespace dcformer
