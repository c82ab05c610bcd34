#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "dcformer/tensor/tensor.h"

namespace dcformer {

/// Where a run stands: with the weights and the moments, all that the rest of the run follows from.
struct RunState {
  /// Updates done (those skipped for values that are not finite included), and rows taken from the
  /// data.
  int64_t step = 0;
  int64_t position = 0;
  /// Updates skipped, in all and in a row up to now.
  int64_t n_skipped = 0;
  int64_t n_skipped_in_a_row = 0;
  /// The last step after which the validation set was evaluated; 0: none.
  int64_t evaluated_step = 0;
  DType dtype = DType::f32;
  /// The hash of the data that the run learns from.
  std::string data_hash;
};

nlohmann::json to_json(const RunState& state);
/// `where` names the JSON in messages. Throws Error for a missing or wrong key.
RunState parse_run_state(const nlohmann::json& json, const std::string& where);

/// The moments of the optimizer, flat in registry order like the parameters' arena.
struct Moments {
  Tensor first;
  Tensor second;
};

}  // namespace dcformer
