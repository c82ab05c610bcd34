#include "tests/reference/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dcformer/base/check.h"
#include "tests/reference/attention.h"
#include "tests/reference/bfloat16.h"
#include "tests/reference/composition_weights.h"
#include "tests/reference/cross_entropy.h"
#include "tests/reference/embedding.h"
#include "tests/reference/linear.h"
#include "tests/reference/mlp.h"
#include "tests/reference/rms_norm.h"
#include "tests/reference/rope.h"

namespace dcformer::reference {
namespace {

using Values = std::vector<double>;

Values sum_of(const Values& a, const Values& b) {
  Values sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

// The columns [begin, begin + count) of rows of `width`.
Values columns(const Values& x, int64_t width, int64_t begin, int64_t count) {
  Values out;
  for (size_t row = 0; row < x.size(); row += width)
    out.insert(out.end(), x.begin() + row + begin, x.begin() + row + begin + count);
  return out;
}

// The forward of one sequence.
class Forward {
 public:
  Forward(const ModelConfig& config, const Parameters& parameters, bool round)
      : config_(config), parameters_(parameters), round_(round) {}

  Values logits(const std::vector<int32_t>& ids) const {
    Values x = embedding(ids, parameter("tok_embeddings.weight"), config_.dim);
    for (int64_t layer = 0; layer < config_.n_layer; ++layer) {
      x = sum_of(x, attention_part(x, layer));
      x = sum_of(x, mlp_part(x, layer));
    }
    const Values normed = rms_norm(x, parameter("norm.weight"), config_.norm_eps);
    return product(normed, config_.tie_word_embeddings ? "tok_embeddings.weight" : "output.weight",
                   config_.dim);
  }

 private:
  const Values& parameter(const std::string& name) const {
    const auto found = parameters_.find(name);
    require(found != parameters_.end(), "no parameter {}", name);
    return found->second;
  }

  const Values& layer_parameter(int64_t layer, const std::string& name) const {
    return parameter(fmt::format("layers.{}.{}", layer, name));
  }

  Values rounded(const Values& values) const { return round_ ? to_bfloat16(values) : values; }

  Values product(const Values& x, const std::string& weight, int64_t n_input) const {
    return linear(rounded(x), rounded(parameter(weight)), {}, static_cast<int>(n_input));
  }

  Values attention_part(const Values& x, int64_t layer) const {
    const ModelConfig& c = config_;
    const std::string prefix = fmt::format("layers.{}.attention", layer);
    const Values normed = rms_norm(x, layer_parameter(layer, "attention_norm.weight"), c.norm_eps);
    const Values qkv = product(normed, prefix + ".wqkv.weight", c.dim);
    const int64_t q_width = c.n_head * c.head_dim, kv_width = c.n_kv_head * c.head_dim;
    const int64_t width = q_width + 2 * kv_width;

    AttentionProblem p;
    p.n_query = p.n_key = static_cast<int64_t>(x.size()) / c.dim;
    p.n_head = c.n_head;
    p.n_kv_head = c.n_kv_head;
    p.head_dim = c.head_dim;
    p.n_group = c.n_group;
    p.rank = c.rank;
    p.window = c.windows[layer % c.windows.size()];
    p.pre = c.use_dcmha && c.pre_compose;
    p.post = c.use_dcmha && c.post_compose;
    p.query_side = c.query_compose;
    p.key_side = c.key_compose;
    p.dynamic = c.use_dcmha && c.dynamic_compose;
    p.gates = c.gates;
    p.base_projection = c.use_dcmha && c.base_projection;
    p.round_to_bf16 = round_;
    p.q = rounded(positioned(columns(qkv, width, 0, q_width), prefix + ".q_norm.scale", c.n_head));
    p.k = rounded(
        positioned(columns(qkv, width, q_width, kv_width), prefix + ".k_norm.scale", c.n_kv_head));
    p.v = rounded(columns(qkv, width, q_width + kv_width, kv_width));
    if (p.dynamic) add_dynamic_weights(p, normed, prefix + ".dyn_w_proj");
    if (p.base_projection && p.pre) p.base_pre = parameter(prefix + ".dyn_w_proj.pre_proj.w");
    if (p.base_projection && p.post) p.base_post = parameter(prefix + ".dyn_w_proj.post_proj.w");
    return product(attention(p).o, prefix + ".wo.weight", q_width);
  }

  // QK norm and rotation of heads whose token n is at position n.
  Values positioned(const Values& heads, const std::string& scale, int64_t n_head) const {
    const Values normed =
        config_.use_qk_norm ? rms_norm(heads, parameter(scale), config_.qk_norm_eps) : heads;
    std::vector<int64_t> positions;
    const int64_t n_token = static_cast<int64_t>(heads.size()) / (n_head * config_.head_dim);
    for (int64_t n = 0; n < n_token; ++n) positions.push_back(n);
    const double rotary_dim = config_.rotary_pct * static_cast<double>(config_.head_dim);
    return rope(normed, positions,
                {.n_head = n_head,
                 .head_dim = config_.head_dim,
                 .rotary_dim = std::llround(rotary_dim),
                 .base = config_.rope_base});
  }

  void add_dynamic_weights(AttentionProblem& p, const Values& normed,
                           const std::string& prefix) const {
    CompositionProblem composition;
    composition.n_token = p.n_key;
    composition.width = config_.dim;
    composition.n_group = p.n_group;
    composition.group_heads = p.group_heads();
    composition.rank = p.rank;
    composition.gelu = config_.gelu;
    composition.gates = config_.gates;
    composition.round_to_bf16 = round_;
    composition.x = normed;
    composition.dw1 = parameter(prefix + ".dw1");
    composition.qkw = parameter(prefix + ".qkw");
    if (config_.gates) composition.dd = parameter(prefix + ".dd");
    const Values weights = composition_weights(composition);
    p.query_weights = composition_side(composition, weights, 0);
    p.key_weights = composition_side(composition, weights, 1);
  }

  Values mlp_part(const Values& x, int64_t layer) const {
    const std::string prefix = fmt::format("layers.{}.feed_forward", layer);
    const Values normed = rms_norm(x, layer_parameter(layer, "ffn_norm.weight"), config_.norm_eps);
    Values gate;
    if (config_.mgate)
      gate = mgate(product(normed, prefix + ".mg.weight", config_.dim), config_.mgate_dim);
    const Values hidden = swiglu(product(normed, prefix + ".w1.weight", config_.dim),
                                 product(normed, prefix + ".w3.weight", config_.dim), gate,
                                 config_.intermediate_size);
    return product(hidden, prefix + ".w2.weight", config_.intermediate_size);
  }

  const ModelConfig& config_;
  const Parameters& parameters_;
  bool round_;
};

// The published table of window kinds (section 3), W being the window.
std::vector<std::optional<int64_t>> windows_of(const nlohmann::json& json) {
  using Windows = std::vector<std::optional<int64_t>>;
  if (json.contains("window_size") && json["window_size"].is_null()) return {std::nullopt};
  const std::optional<int64_t> w = json.value("window_size", 256);
  const nlohmann::json kind = json.value("window_type", nlohmann::json());
  if (kind.is_null() || kind == "LG") return {w, std::nullopt};
  if (kind == "LGLL") return {w, std::nullopt, w, w};
  require(kind == "LGL6", "window_type {}", kind.dump());
  Windows windows(8, w);
  windows[1] = std::nullopt;
  return windows;
}

}  // namespace

ModelConfig read_model_config(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), "{}: cannot be read", path);
  const nlohmann::json json = nlohmann::json::parse(file);
  ModelConfig c;
  c.vocab_size = json.at("vocab_size");
  c.dim = json.at("dim");
  c.n_layer = json.at("n_layer");
  c.n_head = json.at("n_head");
  c.n_kv_head = json.value("n_local_heads", c.n_head);
  c.head_dim = json.value("head_dim", c.dim / c.n_head);
  c.intermediate_size = json.at("intermediate_size");
  c.norm_eps = json.value("norm_eps", c.norm_eps);
  c.use_qk_norm = json.value("use_qk_norm", c.use_qk_norm);
  c.qk_norm_eps = json.value("qk_norm_eps", c.qk_norm_eps);
  c.rope_base = json.value("rope_base", c.rope_base);
  c.rotary_pct = json.value("rotary_pct", c.rotary_pct);
  c.windows = windows_of(json);
  c.use_dcmha = json.value("use_dcmha", c.use_dcmha);
  c.n_group = json.value("n_groups", c.n_group);
  c.rank = json.value("rank", c.rank);
  c.pre_compose = json.value("pre_compose", c.pre_compose);
  c.post_compose = json.value("post_compose", c.post_compose);
  c.query_compose = json.value("query_compose", c.query_compose);
  c.key_compose = json.value("key_compose", !json.value("query_wise", false));
  c.dynamic_compose = json.value("dynamic_compose", c.dynamic_compose);
  c.gates = json.value("gates", c.gates);
  c.base_projection = json.value("base_projection", c.base_projection);
  c.gelu = json.value("gelu", "erf") == "tanh" ? Gelu::tanh : Gelu::erf;
  c.mgate = json.value("mgate", c.mgate);
  c.mgate_dim = json.value("mgate_dim", c.mgate_dim);
  c.tie_word_embeddings = json.value("tie_word_embeddings", c.tie_word_embeddings);
  return c;
}

std::vector<double> model_logits(const ModelConfig& config, const Parameters& parameters,
                                 const std::vector<int32_t>& ids, int64_t length,
                                 bool round_to_bf16) {
  const Forward forward(config, parameters, round_to_bf16);
  Values all;
  for (auto row = ids.begin(); row != ids.end(); row += length) {
    const Values logits = forward.logits({row, row + length});
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

double model_loss(const ModelConfig& config, const Parameters& parameters,
                  const std::vector<int32_t>& ids, int64_t length, bool round_to_bf16) {
  std::vector<int32_t> targets(ids.begin() + 1, ids.end());
  targets.push_back(-1);
  for (size_t last = length - 1; last < targets.size(); last += length) targets[last] = -1;
  return cross_entropy(model_logits(config, parameters, ids, length, round_to_bf16), targets)
      .mean();
}

}  // namespace dcformer::reference
