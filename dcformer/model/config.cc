#include "dcformer/model/config.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <limits>

#include "dcformer/base/check.h"
#include "dcformer/io/json_object.h"
#include "dcformer/ops/composed_attention.h"

namespace dcformer {
namespace {

constexpr int64_t kLarge = int64_t{1} << 24;
// Tables of rotations are made for all of it.
constexpr int64_t kLongestContext = int64_t{1} << 20;
constexpr double kLargestDropout = 0.99;

// Published keys that say nothing about the mathematics.
const char* const kIgnoredKeys[] = {
    "architectures", "torch_dtype",         "bos_token_id",
    "eos_token_id",  "pad_token_id",        "is_training",
    "prefill_pad",   "q_chunk_size",        "use_gradient_checkpointing",
    "auto_map",      "transformers_version"};

int64_t default_intermediate_size(int64_t dim) {
  const int64_t two_thirds = 2 * 4 * dim / 3;
  return (two_thirds + 255) / 256 * 256;
}

std::vector<int64_t> parse_window_list(JsonObject& json) {
  std::vector<int64_t> windows;
  const nlohmann::json& list = json.raw("windows");
  if (!list.is_array() || list.empty() || list.size() > 4096)
    json.fail_key("windows", "a list of window lengths (null: global)");
  for (const nlohmann::json& entry : list) {
    const bool valid = entry.is_null() || (entry.is_number_integer() && entry.get<int64_t>() >= 1 &&
                                           entry.get<int64_t>() <= kLarge);
    if (!valid)
      json.fail_key("windows", fmt::format("a list of window lengths of at least 1 (null: global), "
                                           "none above {}",
                                           kLarge));
    windows.push_back(entry.is_null() ? 0 : entry.get<int64_t>());
  }
  return windows;
}

std::vector<int64_t> parse_windows(JsonObject& json, const nlohmann::json& all) {
  for (const char* key : {"windows", "window_size", "window_type"}) json.raw(key);
  if (json.has("windows")) return parse_window_list(json);
  // An explicit null is "every layer global", an absent key the published default.
  const bool explicit_null = all.contains("window_size") && all.at("window_size").is_null();
  const int64_t window = json.integer("window_size", explicit_null ? 0 : 256, 1, kLarge);
  if (window == 0) return {0};
  const std::string type = json.choice("window_type", "LG", {"LG", "LGLL", "LGL6"});
  if (type == "LG") return {window, 0};
  std::vector<int64_t> windows = {window, 0, window, window};
  if (type == "LGL6") windows.insert(windows.end(), 4, window);
  return windows;
}

void parse_composition(JsonObject& json, ModelConfig& c) {
  for (const char* key :
       {"n_groups", "rank", "pre_compose", "post_compose", "query_compose", "key_compose",
        "query_wise", "gates", "dynamic_compose", "base_projection"})
    json.raw(key);
  c.use_dcmha = json.boolean("use_dcmha", true);
  if (!c.use_dcmha) return;
  c.n_group = json.integer("n_groups", 1, 1, kLarge);
  c.rank = json.integer("rank", 2, 1, kMaxRank);
  c.pre_compose = json.boolean("pre_compose", true);
  c.post_compose = json.boolean("post_compose", true);
  c.query_compose = json.boolean("query_compose", true);
  c.key_compose = json.boolean("key_compose", !json.boolean("query_wise", false));
  c.gates = json.boolean("gates", true);
  c.dynamic_compose = json.boolean("dynamic_compose", true);
  c.base_projection = json.boolean("base_projection", false);
}

void require_unsupported_off(JsonObject& json) {
  const bool layer = json.choice("norm", "rms", {"rms", "layer"}) == "layer";
  require(!layer, "{}.norm: layer is not supported yet, expected rms", json.where());
  for (const char* key : {"use_parallel_residual", "use_linear_bias"})
    require(!json.boolean(key, false), "{}.{}: true is not supported yet, expected false",
            json.where(), key);
  json.choice("position", "rope", {"rope"});
}

void check_shapes(const ModelConfig& c, const std::string& where) {
  require(c.n_head % c.n_kv_head == 0, "{}.n_local_heads: {} does not divide n_head {}", where,
          c.n_kv_head, c.n_head);
  const bool whole = c.rotary_dim() % 2 == 0 && c.rotary_dim() <= c.head_dim;
  require(whole,
          "{}: rotary width {} (rotary_pct · head_dim) is odd or above head_dim, expected an even "
          "number",
          where, c.rotary_dim());
  if (c.use_dcmha)
    require(c.n_head / c.n_group <= kMaxGroupHeads,
            "{}.n_groups: {} for {} heads (n_head) are more than {} heads a group", where,
            c.n_group, c.n_head, kMaxGroupHeads);
  if (c.use_dcmha)
    require(c.n_head % c.n_group == 0, "{}.n_groups: {} does not divide n_head {}", where,
            c.n_group, c.n_head);
  if (c.mgate)
    require(c.intermediate_size % c.mgate_dim == 0,
            "{}.mgate_dim: {} does not divide intermediate_size {}", where, c.mgate_dim,
            c.intermediate_size);
}

}  // namespace

int64_t ModelConfig::rotary_dim_of(int64_t head_dim, double rotary_pct) {
  return static_cast<int64_t>(static_cast<double>(head_dim) * rotary_pct);
}

ModelConfig parse_model_config(const nlohmann::json& all, const std::string& where,
                               UnknownKeys unknown) {
  JsonObject json(all, where);
  ModelConfig c;
  c.model_type = json.text("model_type", "dcformer");
  require(c.model_type == "dcformer", "{}.model_type: '{}' is not supported yet, expected dcformer",
          where, c.model_type);
  c.vocab_size = json.integer("vocab_size", 32000, 1, kLarge);
  c.dim = json.integer("dim", 2560, 1, kLarge);
  c.n_layer = json.integer("n_layer", 32, 0, 4096);
  c.n_head = json.integer("n_head", 32, 1, 4096);
  const int64_t local = json.integer("n_local_heads", -1, -1, 4096);
  c.n_kv_head = local == -1 ? c.n_head : local;
  require(c.n_kv_head >= 1, "{}.n_local_heads: 0, expected at least 1 (or -1 for n_head)", where);
  require(json.has("head_dim") || c.dim % c.n_head == 0, "{}.n_head: {} does not divide dim {}",
          where, c.n_head, c.dim);
  c.head_dim = json.integer("head_dim", c.dim / c.n_head, 1, 4096);
  c.intermediate_size =
      json.integer("intermediate_size", default_intermediate_size(c.dim), 1, kLarge);
  c.block_size = json.integer("block_size", 2048, 1, kLongestContext);
  c.norm_eps = json.number("norm_eps", 1e-5, 0, 1);
  c.qk_norm_eps = json.number("qk_norm_eps", 1e-6, 0, 1);
  c.use_qk_norm = json.boolean("use_qk_norm", false);
  c.rope_base = json.number("rope_base", 500000, 1, std::numeric_limits<double>::max());
  c.rotary_pct = json.number("rotary_pct", 1, 0, 1);
  c.windows = parse_windows(json, all);
  c.mgate = json.boolean("mgate", false);
  c.mgate_dim = c.mgate ? json.integer("mgate_dim", 44, 1, kLarge) : 44;
  json.raw("mgate_dim");
  c.tie_word_embeddings = json.boolean("tie_word_embeddings", false);
  require(!c.tie_word_embeddings,
          "{}.tie_word_embeddings: true is not supported yet, expected false", where);
  c.gelu = json.choice("gelu", "erf", {"erf", "tanh"}) == "erf" ? GeluKind::erf : GeluKind::tanh;
  c.dropout = json.number("dropout", 0, 0, kLargestDropout);
  c.dynamic_dropout = json.number("dynamic_dropout", 0, 0, kLargestDropout);
  parse_composition(json, c);
  require_unsupported_off(json);
  for (const char* key : kIgnoredKeys) json.raw(key);
  check_shapes(c, where);
  if (unknown == UnknownKeys::error) {
    json.require_no_unknown_keys();
  } else if (const auto keys = json.unknown_keys(); !keys.empty()) {
    spdlog::warn("{}: unknown keys are ignored: {}", where, fmt::join(keys, ", "));
  }
  return c;
}

nlohmann::json to_json(const ModelConfig& c) {
  nlohmann::json windows = nlohmann::json::array();
  for (int64_t w : c.windows) windows.push_back(w == 0 ? nlohmann::json() : nlohmann::json(w));
  nlohmann::json json = {{"architectures", {"DCFormer"}},
                         {"model_type", c.model_type},
                         {"vocab_size", c.vocab_size},
                         {"dim", c.dim},
                         {"n_layer", c.n_layer},
                         {"n_head", c.n_head},
                         {"n_local_heads", c.n_kv_head},
                         {"head_dim", c.head_dim},
                         {"intermediate_size", c.intermediate_size},
                         {"block_size", c.block_size},
                         {"norm_eps", c.norm_eps},
                         {"qk_norm_eps", c.qk_norm_eps},
                         {"use_qk_norm", c.use_qk_norm},
                         {"rope_base", c.rope_base},
                         {"rotary_pct", c.rotary_pct},
                         {"windows", windows},
                         {"mgate", c.mgate},
                         {"mgate_dim", c.mgate_dim},
                         {"tie_word_embeddings", c.tie_word_embeddings},
                         {"gelu", c.gelu == GeluKind::erf ? "erf" : "tanh"},
                         {"dropout", c.dropout},
                         {"dynamic_dropout", c.dynamic_dropout},
                         {"use_dcmha", c.use_dcmha},
                         {"n_groups", c.n_group},
                         {"rank", c.rank},
                         {"pre_compose", c.pre_compose},
                         {"post_compose", c.post_compose},
                         {"query_compose", c.query_compose},
                         {"key_compose", c.key_compose},
                         {"gates", c.gates},
                         {"dynamic_compose", c.dynamic_compose},
                         {"base_projection", c.base_projection},
                         {"torch_dtype", "float32"}};
  return json;
}

}  // namespace dcformer
