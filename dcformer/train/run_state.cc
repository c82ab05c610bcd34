#include "dcformer/train/run_state.h"

#include "dcformer/base/check.h"
#include "dcformer/io/json_object.h"

namespace dcformer {

nlohmann::json to_json(const RunState& state) {
  return {{"step", state.step},
          {"position", state.position},
          {"n_skipped", state.n_skipped},
          {"n_skipped_in_a_row", state.n_skipped_in_a_row},
          {"evaluated_step", state.evaluated_step},
          {"dtype", std::string(name_of(state.dtype))},
          {"data_hash", state.data_hash}};
}

RunState parse_run_state(const nlohmann::json& json, const std::string& where) {
  JsonObject object(json, where);
  const auto count = [&](const char* key) {
    require(object.has(key), "{}.{}: is missing", where, key);
    return object.integer(key, 0, 0, INT64_MAX);
  };
  RunState state;
  state.step = count("step");
  state.position = count("position");
  state.n_skipped = count("n_skipped");
  state.n_skipped_in_a_row = count("n_skipped_in_a_row");
  state.evaluated_step = count("evaluated_step");
  state.dtype = object.choice("dtype", "f32", {"f32", "bf16"}) == "f32" ? DType::f32 : DType::bf16;
  state.data_hash = object.text("data_hash", "");
  return state;
}

}  // namespace dcformer
