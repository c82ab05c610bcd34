#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/reference/gelu.h"

namespace dcformer::reference {

/// What the language model's forward depends on: the keys of docs/design.md, section 3, that
/// DCFormer++ blocks use.
struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t dim = 0;
  int64_t n_layer = 0;
  int64_t n_head = 1;
  int64_t n_kv_head = 1;
  int64_t head_dim = 1;
  int64_t intermediate_size = 0;
  double norm_eps = 1e-5;
  bool use_qk_norm = false;
  double qk_norm_eps = 1e-6;
  double rope_base = 500000;
  double rotary_pct = 1;
  /// One entry a layer of the repeating block; none: a global layer.
  std::vector<std::optional<int64_t>> windows{std::nullopt};
  bool use_dcmha = true;
  int64_t n_group = 1;
  int64_t rank = 2;
  bool pre_compose = true;
  bool post_compose = true;
  bool query_compose = true;
  bool key_compose = true;
  bool dynamic_compose = true;
  bool gates = true;
  bool base_projection = false;
  Gelu gelu = Gelu::erf;
  bool mgate = false;
  int64_t mgate_dim = 44;
  bool tie_word_embeddings = false;
};

/// The same out of a `config.json`. Reads only what it knows; throws when a needed key is missing.
ModelConfig read_model_config(const std::string& path);

/// Parameters by their published names.
using Parameters = std::map<std::string, std::vector<double>>;

/// Logits [B,T,V] of ids [B,T] (rows of `length`), each row a sequence from position 0, all in one
/// pass. With `round_to_bf16` exactly those values are rounded that section 2 names under "Number
/// formats": operands of matrix products with their weights, K, V, key-side composition weights,
/// A'' before v, u before qkw. The embedding table is looked up, not multiplied: it is not rounded.
std::vector<double> model_logits(const ModelConfig& config, const Parameters& parameters,
                                 const std::vector<int32_t>& ids, int64_t length,
                                 bool round_to_bf16 = false);

/// Mean cross-entropy of the next token over the length-1 predicted positions of each row.
double model_loss(const ModelConfig& config, const Parameters& parameters,
                  const std::vector<int32_t>& ids, int64_t length, bool round_to_bf16 = false);

}  // namespace dcformer::reference
