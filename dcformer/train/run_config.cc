#include "dcformer/train/run_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "dcformer/base/check.h"
#include "dcformer/base/utf8.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/json_object.h"

namespace dcformer {
namespace {

constexpr int64_t kLarge = int64_t{1} << 40;
// A parameter whose gradient was always 0 divides by it, in f32.
constexpr double kLeastEps = 1e-30;
constexpr std::array<const char*, 3> kSections = {"model", "data", "train"};

DataConfig parse_data(const nlohmann::json& json, const std::string& where) {
  JsonObject object(json, where);
  DataConfig d;
  d.text = object.texts("text");
  d.rows = object.text("rows", "");
  d.validation_rows = object.text("validation_rows", "");
  d.tokenizer = object.text("tokenizer", d.tokenizer);
  d.sequence_length = object.integer("sequence_length", d.sequence_length, 1, 1 << 24);
  d.shuffle = object.boolean("shuffle", d.shuffle);
  d.seed = static_cast<uint64_t>(object.integer("seed", 1, 0, INT64_MAX));
  object.require_no_unknown_keys();
  if (std::find(d.text.begin(), d.text.end(), "") != d.text.end())
    object.fail_key("text", "the name of a file, or a list of names");
  if (d.tokenizer.empty()) object.fail_key("tokenizer", "byte, bpe:N or a tokenizer's path");
  require(d.text.empty() != d.rows.empty(), "{}: expected either 'text' or 'rows'", where);
  require(d.validation_rows.empty() || !d.rows.empty(),
          "{}.validation_rows: goes with 'rows'; 'text' keeps its own part for validation", where);
  return d;
}

TrainConfig parse_train(const nlohmann::json& json, const std::string& where) {
  JsonObject object(json, where);
  TrainConfig t;
  t.steps = object.integer("steps", t.steps, 1, kLarge);
  t.warmup_steps =
      object.integer("warmup_steps", std::min(t.warmup_steps, t.steps / 10), 0, kLarge);
  t.learning_rate = object.number("learning_rate", t.learning_rate, 0, 100);
  t.final_learning_rate_ratio =
      object.number("final_learning_rate_ratio", t.final_learning_rate_ratio, 0, 1);
  t.batch_size = object.integer("batch_size", t.batch_size, 1, 1 << 20);
  t.accumulation = object.integer("accumulation", t.accumulation, 1, 1 << 20);
  t.beta1 = object.number("beta1", t.beta1, 0, 0.999999);
  t.beta2 = object.number("beta2", t.beta2, 0, 0.999999);
  t.eps = object.number("eps", t.eps, kLeastEps, 1);
  t.weight_decay = object.number("weight_decay", t.weight_decay, 0, 100);
  t.decay_mask = object.choice("decay_mask", t.decay_mask, {"all", "matrices"});
  t.clip_norm = object.number("clip_norm", t.clip_norm, 0, 1e30);
  t.dtype = object.choice("dtype", t.dtype, {"f32", "bf16", "auto"});
  t.seed = static_cast<uint64_t>(object.integer("seed", 1, 0, INT64_MAX));
  t.init_std = object.number("init_std", t.init_std, 0, 10);
  t.evaluate_every = object.integer("evaluate_every", t.evaluate_every, 0, kLarge);
  t.save_every = object.integer("save_every", t.save_every, 0, kLarge);
  t.keep_last = object.integer("keep_last", t.keep_last, 1, kLarge);
  t.activation_checkpointing =
      object.boolean("activation_checkpointing", t.activation_checkpointing);
  object.require_no_unknown_keys();
  require(t.warmup_steps <= t.steps, "{}.warmup_steps: {} is more than the {} steps", where,
          t.warmup_steps, t.steps);
  return t;
}

void require_section(const std::string& name, const std::string& where) {
  require(std::find(kSections.begin(), kSections.end(), name) != kSections.end(),
          "{}: unknown section '{}', expected one of {}", where, shorten_utf8(name, 60),
          fmt::join(kSections, ", "));
}

void put_override(nlohmann::json& json, const std::string& text) {
  const Override o = parse_override(text);
  nlohmann::json& section = json[o.section];
  if (section.is_null()) section = nlohmann::json::object();
  require(section.is_object(), "--set {}: '{}' is not a section", text, o.section);
  section[o.key] = o.value;
}

}  // namespace

Override parse_override(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  const size_t dot = path.find('.');
  const bool whole =
      equals != std::string::npos && dot != std::string::npos && dot > 0 && dot + 1 < path.size();
  require(whole, "{}: expected SECTION.KEY=VALUE", text);
  require(find_invalid_utf8(text) == std::string::npos, "{}: not valid UTF-8", path);
  Override o{path.substr(0, dot), path.substr(dot + 1), text.substr(equals + 1)};
  require_section(o.section, text);
  try {
    o.value = parse_json(o.value.get_ref<const std::string&>(), "--set");
  } catch (const Error&) {
    // Plain text.
  }
  return o;
}

ModelConfig parse_model_section(nlohmann::json model, const std::string& where,
                                std::optional<int64_t> vocab_size) {
  if (vocab_size && model.is_object() && model.value("vocab_size", nlohmann::json()).is_null())
    model["vocab_size"] = *vocab_size;
  return parse_model_config(model, where, UnknownKeys::error);
}

RunConfig parse_run_config(nlohmann::json json, const std::string& where) {
  const JsonObject object(json, where);
  RunConfig config;
  for (const std::string& name : object.unknown_keys()) require_section(name, where);
  const auto section = [&](const char* name) {
    return json.contains(name) ? json.at(name) : nlohmann::json::object();
  };
  config.model = section("model");
  parse_model_section(config.model, where + ": model", 1);
  config.data = parse_data(section("data"), where + ": data");
  config.train = parse_train(section("train"), where + ": train");
  config.json = std::move(json);
  return config;
}

RunConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides) {
  nlohmann::json json = read_json_file(path);
  require(json.is_object(), "{}: expected a JSON object", path);
  for (const std::string& text : overrides) put_override(json, text);
  return parse_run_config(std::move(json), path);
}

nlohmann::json to_json(const DataConfig& d) {
  return {{"text", d.text},
          {"rows", d.rows},
          {"validation_rows", d.validation_rows},
          {"tokenizer", d.tokenizer},
          {"sequence_length", d.sequence_length},
          {"shuffle", d.shuffle},
          {"seed", d.seed}};
}

nlohmann::json to_json(const TrainConfig& t) {
  return {{"steps", t.steps},
          {"warmup_steps", t.warmup_steps},
          {"learning_rate", t.learning_rate},
          {"final_learning_rate_ratio", t.final_learning_rate_ratio},
          {"batch_size", t.batch_size},
          {"accumulation", t.accumulation},
          {"beta1", t.beta1},
          {"beta2", t.beta2},
          {"eps", t.eps},
          {"weight_decay", t.weight_decay},
          {"decay_mask", t.decay_mask},
          {"clip_norm", t.clip_norm},
          {"dtype", t.dtype},
          {"seed", t.seed},
          {"init_std", t.init_std},
          {"evaluate_every", t.evaluate_every},
          {"save_every", t.save_every},
          {"keep_last", t.keep_last},
          {"activation_checkpointing", t.activation_checkpointing}};
}

double learning_rate_at(const TrainConfig& config, int64_t step) {
  if (step < config.warmup_steps)
    return config.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(config.warmup_steps);
  const int64_t length = std::max<int64_t>(1, config.steps - config.warmup_steps);
  const double progress =
      std::min(1.0, static_cast<double>(step - config.warmup_steps) / static_cast<double>(length));
  const double cosine = (1 + std::cos(std::numbers::pi * progress)) / 2;
  return config.learning_rate * (cosine + config.final_learning_rate_ratio * (1 - cosine));
}

}  // namespace dcformer
