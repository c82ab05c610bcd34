#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dcformer/model/config.h"

namespace dcformer {

/// The `data` section of a run file.
struct DataConfig {
  /// Text files (also .gz), or ready-made rows (`FILE.safetensors[:NAME]`): one of the two.
  std::vector<std::string> text;
  std::string rows;
  /// Ready-made rows to evaluate, beside `rows`; "": none.
  std::string validation_rows;
  /// "byte"; "bpe:N" (train one of N pieces on the training text); or a tokenizer's file or folder.
  std::string tokenizer = "byte";
  int64_t sequence_length = 256;
  bool shuffle = true;
  uint64_t seed = 1;
};

/// The `train` section of a run file.
struct TrainConfig {
  int64_t steps = 1000;
  int64_t warmup_steps = 100;
  double learning_rate = 3e-4;
  double final_learning_rate_ratio = 0.1;
  /// Rows of one pass, and passes of one update.
  int64_t batch_size = 8;
  int64_t accumulation = 1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  /// "all" parameters decay, or only the "matrices" (two and more dimensions).
  std::string decay_mask = "matrices";
  /// 0: no clipping.
  double clip_norm = 1;
  /// "f32", "bf16" or "auto".
  std::string dtype = "auto";
  uint64_t seed = 1;
  /// Standard deviation of the initial values of linear layers and embeddings.
  double init_std = 0.006;
  /// Updates between validations, and between checkpoints; 0: only at the end.
  int64_t evaluate_every = 0;
  int64_t save_every = 0;
  /// Checkpoints that are kept, the newest ones; the best by validation is kept beside them.
  int64_t keep_last = 2;
  /// Keep only the blocks' inputs of the forward pass, and compute the rest again.
  bool activation_checkpointing = false;
};

/// The sections with all their keys, so that equal ones mean the same.
nlohmann::json to_json(const DataConfig& config);
nlohmann::json to_json(const TrainConfig& config);

/// A run file. The `model` section, though checked, stays JSON until the tokenizer is known: its
/// `vocab_size` is the tokenizer's unless given.
struct RunConfig {
  nlohmann::json model;
  DataConfig data;
  TrainConfig train;
  /// The whole file with the overrides in, as it is written into the run folder.
  nlohmann::json json;
};

/// One override, `SECTION.KEY=VALUE`: the value is JSON, or else plain text.
struct Override {
  std::string section;
  std::string key;
  nlohmann::json value;
};

/// Throws Error, naming `text`, for another form and for a section that run files have not.
Override parse_override(const std::string& text);

/// The model section of a run file, with `vocab_size` (the tokenizer's, say, where there is one) in
/// the place of a vocabulary that it leaves out. `where` names it in messages. Throws Error like
/// parse_model_config.
ModelConfig parse_model_section(nlohmann::json model, const std::string& where,
                                std::optional<int64_t> vocab_size);

/// Reads a run file, `overrides` (`train.learning_rate=1e-3`, values in JSON or plain text) put in.
/// Relative paths stay as they are (relative to where the tool runs). Throws Error for unknown keys
/// (naming the nearest), wrong types and values out of range.
RunConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides);

/// The same for JSON at hand.
RunConfig parse_run_config(nlohmann::json json, const std::string& where);

/// The rate of update `step` (from 0): learning_rate·(step+1)/warmup_steps during warm-up, then a
/// cosine from 1 to `final_learning_rate_ratio` at `steps`.
double learning_rate_at(const TrainConfig& config, int64_t step);

}  // namespace dcformer
