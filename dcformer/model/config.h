#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dcformer/ops/composition_weights.h"

namespace dcformer {

/// What a model is: the published configuration keys and ours (docs/design.md, section 3), checked.
struct ModelConfig {
  std::string model_type = "dcformer";
  int64_t vocab_size = 32000;
  int64_t dim = 2560;
  int64_t n_layer = 32;
  int64_t n_head = 32;
  int64_t n_kv_head = 32;  // `n_local_heads`
  int64_t head_dim = 80;
  int64_t intermediate_size = 6912;
  int64_t block_size = 2048;
  double norm_eps = 1e-5;
  double qk_norm_eps = 1e-6;
  bool use_qk_norm = false;
  double rope_base = 500000;
  double rotary_pct = 1;
  /// The window of each layer of the repeating block; 0: global.
  std::vector<int64_t> windows = {256, 0};
  bool mgate = false;
  int64_t mgate_dim = 44;
  bool tie_word_embeddings = false;
  GeluKind gelu = GeluKind::erf;
  /// In training: of each sub-layer's output before the residual, and of the composition's u.
  double dropout = 0;
  double dynamic_dropout = 0;

  // Composition.
  bool use_dcmha = true;
  int64_t n_group = 1;  // `n_groups`
  int64_t rank = 2;
  bool pre_compose = true;
  bool post_compose = true;
  bool query_compose = true;
  bool key_compose = true;
  bool gates = true;
  bool dynamic_compose = true;
  bool base_projection = false;

  int64_t rotary_dim() const { return rotary_dim_of(head_dim, rotary_pct); }
  int64_t window(int64_t layer) const {
    return windows[static_cast<size_t>(layer) % windows.size()];
  }
  CompositionSizes composition_sizes() const { return {n_group, rank, n_head / n_group, gates}; }
  /// Dynamic composition weights exist.
  bool has_dynamic() const { return use_dcmha && dynamic_compose; }
  bool has_base() const { return use_dcmha && base_projection; }

  static int64_t rotary_dim_of(int64_t head_dim, double rotary_pct);
};

/// What to do with keys that mean nothing here: run files are held to the letter, published model
/// folders carry many.
enum class UnknownKeys : uint8_t { error, warn };

/// Reads and checks a configuration. `where` names it in messages. Throws Error for a wrong type,
/// an impossible shape (heads that do not divide, an odd rotary width, a window of 0, …), a feature
/// that is not supported, and, with UnknownKeys::error, an unknown key, naming the nearest.
ModelConfig parse_model_config(const nlohmann::json& json, const std::string& where,
                               UnknownKeys unknown);

/// The configuration with the published keys, so that parse_model_config gives it back.
nlohmann::json to_json(const ModelConfig& config);

}  // namespace dcformer
