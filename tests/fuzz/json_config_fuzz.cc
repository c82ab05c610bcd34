// JSON, model configurations and run files.

#include <spdlog/spdlog.h>

#include <string_view>

#include "dcformer/io/json_file.h"
#include "dcformer/model/config.h"
#include "dcformer/train/run_config.h"
#include "dcformer/train/run_state.h"
#include "tests/fuzz/only_errors.h"

namespace dcformer::test {
namespace {

void parse_model(const nlohmann::json& json, UnknownKeys unknown) {
  only_errors([&] {
    const ModelConfig config = parse_model_config(json, "input", unknown);
    const nlohmann::json written = to_json(config);
    must_hold(to_json(parse_model_config(written, "written", UnknownKeys::error)) == written);
  });
}

}  // namespace
}  // namespace dcformer::test

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // Warnings of unknown keys would drown everything else.
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dcformer;
  test::only_errors([&] {
    const nlohmann::json json =
        parse_json(std::string_view(reinterpret_cast<const char*>(data), size), "input");
    test::parse_model(json, UnknownKeys::warn);
    test::parse_model(json, UnknownKeys::error);
    test::only_errors([&] { parse_run_state(json, "input"); });
    const RunConfig config = parse_run_config(json, "input");
    test::parse_model(config.model, UnknownKeys::error);
    learning_rate_at(config.train, 0);
  });
  return 0;
}
