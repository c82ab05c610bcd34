#include "dcformer/io/safetensors_shards.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"

namespace dcformer {
namespace {

const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

// Tensors [begin, end) of the plan.
struct Shard {
  size_t begin;
  size_t end;
};

std::vector<Shard> cut(const std::vector<PlannedTensor>& plan, uint64_t max_shard_bytes) {
  std::vector<Shard> shards = {{0, 0}};
  uint64_t bytes = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    const bool full =
        bytes + plan[i].bytes() > max_shard_bytes && shards.back().end > shards.back().begin;
    if (full) {
      shards.push_back({i, i});
      bytes = 0;
    }
    shards.back().end = i + 1;
    bytes += plan[i].bytes();
  }
  return shards;
}

WriteSummary write_shard(const std::string& path, const std::vector<PlannedTensor>& plan,
                         const TensorGiver& give, const Shard& shard) {
  const std::vector<PlannedTensor> part(plan.begin() + static_cast<ptrdiff_t>(shard.begin),
                                        plan.begin() + static_cast<ptrdiff_t>(shard.end));
  return write_safetensors(
      path, part, [&](size_t i) { return give(shard.begin + i); }, kMetadata);
}

}  // namespace

WriteSummary write_safetensors_shards(const std::string& folder,
                                      const std::vector<PlannedTensor>& plan,
                                      const TensorGiver& give, uint64_t max_shard_bytes) {
  uint64_t total = 0;
  for (const PlannedTensor& tensor : plan) total += tensor.bytes();
  const std::string whole = folder + "/model.safetensors";
  require_free_space(whole, total);
  const std::vector<Shard> shards = cut(plan, max_shard_bytes);
  if (shards.size() == 1) return write_shard(whole, plan, give, shards.front());
  std::error_code error;
  require(!std::filesystem::exists(whole, error),
          "{}: stands in the way of shards, readers would take it for them", whole);
  nlohmann::json index = {{"metadata", {{"total_size", total}}},
                          {"weight_map", nlohmann::json::object()}};
  WriteSummary summary;
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    const WriteSummary part = write_shard(folder + "/" + name, plan, give, shards[s]);
    if (summary.n_overflow == 0) summary.overflow_in = part.overflow_in;
    summary.n_overflow += part.n_overflow;
    for (size_t i = shards[s].begin; i < shards[s].end; ++i)
      index["weight_map"][plan[i].name] = name;
  }
  replace_file(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
  return summary;
}

}  // namespace dcformer
