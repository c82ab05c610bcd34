#include "dcformer/train/run_differences.h"

#include <algorithm>
#include <array>

namespace dcformer {
namespace {

constexpr std::array<const char*, 11> kAllowed = {
    "train.steps",      "train.warmup_steps",  "train.evaluate_every",
    "train.save_every", "train.keep_last",     "train.activation_checkpointing",
    "train.batch_size", "train.accumulation",  "data.text",
    "data.rows",        "data.validation_rows"};

nlohmann::json model_section(const RunConfig& config) {
  nlohmann::json json = to_json(parse_model_section(config.model, "model", 1));
  // Without one it is the tokenizer's.
  json["vocab_size"] = config.model.value("vocab_size", nlohmann::json());
  return json;
}

bool same_update_size(const TrainConfig& a, const TrainConfig& b) {
  return a.batch_size * a.accumulation == b.batch_size * b.accumulation;
}

}  // namespace

std::vector<RunDifference> run_differences(const RunConfig& before, const RunConfig& after) {
  const auto sections = [](const RunConfig& c) {
    return nlohmann::json{
        {"model", model_section(c)}, {"data", to_json(c.data)}, {"train", to_json(c.train)}};
  };
  const nlohmann::json left = sections(before);
  const nlohmann::json right = sections(after);
  std::vector<RunDifference> differences;
  for (const char* section : {"model", "data", "train"})
    for (const auto& [key, value] : left.at(section).items()) {
      const nlohmann::json& other = right.at(section).at(key);
      if (value == other) continue;
      RunDifference d{std::string(section) + "." + key, value.dump(), other.dump(), false};
      d.allowed = std::find(kAllowed.begin(), kAllowed.end(), d.key) != kAllowed.end();
      if (d.key == "train.batch_size" || d.key == "train.accumulation")
        d.allowed = same_update_size(before.train, after.train);
      differences.push_back(std::move(d));
    }
  return differences;
}

}  // namespace dcformer
