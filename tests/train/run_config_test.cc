#include "dcformer/train/run_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "dcformer/io/json_file.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

RunConfig parse(const std::string& text) { return parse_run_config(parse_json(text, "t"), "run"); }

RunConfig parse_train(const std::string& keys) {
  return parse(fmt::format(R"({{"data": {{"text": "a.txt"}}, "train": {{{}}}}})", keys));
}

TEST(RunConfig, DefaultsOfASmallRunFile) {
  const RunConfig c = parse(R"({"data": {"text": "a.txt"}})");
  EXPECT_EQ(c.model, nlohmann::json::object());
  EXPECT_THAT(c.data.text, ElementsAre("a.txt"));
  EXPECT_EQ(c.data.rows, "");
  EXPECT_EQ(c.data.tokenizer, "byte");
  EXPECT_TRUE(c.data.shuffle);
  EXPECT_EQ(c.train.steps, 1000);
  EXPECT_EQ(c.train.warmup_steps, 100);
  EXPECT_EQ(c.train.beta1, 0.9);
  EXPECT_EQ(c.train.beta2, 0.95);
  EXPECT_EQ(c.train.eps, 1e-8);
  EXPECT_EQ(c.train.weight_decay, 0.1);
  EXPECT_EQ(c.train.clip_norm, 1);
  EXPECT_EQ(c.train.init_std, 0.006);
  EXPECT_EQ(c.train.final_learning_rate_ratio, 0.1);
}

TEST(RunConfig, ReadsEveryKey) {
  const RunConfig c = parse(R"({
    "model": {"dim": 8, "n_head": 2},
    "data": {"text": ["a", "b.gz"], "tokenizer": "bpe:300", "sequence_length": 7,
             "shuffle": false, "seed": 9},
    "train": {"steps": 20, "warmup_steps": 3, "learning_rate": 0.5,
              "final_learning_rate_ratio": 0.25, "batch_size": 2, "accumulation": 4, "beta1": 0.1,
              "beta2": 0.2, "eps": 1e-3, "weight_decay": 0.3, "decay_mask": "all", "clip_norm": 0,
              "dtype": "bf16", "seed": 5, "init_std": 0.02, "evaluate_every": 6, "save_every": 8}
  })");
  EXPECT_EQ(c.model["n_head"], 2);
  EXPECT_THAT(c.data.text, ElementsAre("a", "b.gz"));
  EXPECT_EQ(c.data.tokenizer, "bpe:300");
  EXPECT_EQ(c.data.sequence_length, 7);
  EXPECT_FALSE(c.data.shuffle);
  EXPECT_EQ(c.data.seed, 9u);
  EXPECT_EQ(c.train.steps, 20);
  EXPECT_EQ(c.train.warmup_steps, 3);
  EXPECT_EQ(c.train.learning_rate, 0.5);
  EXPECT_EQ(c.train.final_learning_rate_ratio, 0.25);
  EXPECT_EQ(c.train.batch_size, 2);
  EXPECT_EQ(c.train.accumulation, 4);
  EXPECT_EQ(c.train.beta1, 0.1);
  EXPECT_EQ(c.train.beta2, 0.2);
  EXPECT_EQ(c.train.eps, 1e-3);
  EXPECT_EQ(c.train.weight_decay, 0.3);
  EXPECT_EQ(c.train.decay_mask, "all");
  EXPECT_EQ(c.train.clip_norm, 0);
  EXPECT_EQ(c.train.dtype, "bf16");
  EXPECT_EQ(c.train.seed, 5u);
  EXPECT_EQ(c.train.init_std, 0.02);
  EXPECT_EQ(c.train.evaluate_every, 6);
  EXPECT_EQ(c.train.save_every, 8);
  EXPECT_EQ(parse(R"({"data": {"rows": "f.safetensors:x"}})").data.rows, "f.safetensors:x");
}

TEST(RunConfig, NamesUnknownKeys) {
  const auto fault = [](const std::string& text, const std::string& message) {
    expect_error([&] { parse(text); }, {message});
  };
  fault(R"({"data": {"text": "a"}, "tain": {}})",
        "run: unknown section 'tain', expected one of model, data, train");
  fault(R"({"data": {"text": "a", "shufle": true}})",
        "run: data: unknown key 'shufle'; did you mean 'shuffle'?");
  fault(R"({"data": {"text": "a"}, "train": {"lr": 1}})", "run: train: unknown key 'lr'");
}

TEST(RunConfig, NeedsTextOrRows) {
  for (const char* text : {"{}", R"({"data": {}})", R"({"data": {"text": []}})",
                           R"({"data": {"text": "a", "rows": "b"}})"})
    expect_error([&] { parse(text); }, {"run: data: expected either 'text' or 'rows'"});
  for (const char* text : {"[]", "1", R"({"model": 1})", R"({"data": []})",
                           R"({"data": {"text": "a"}, "train": "fast"})"})
    expect_error([&] { parse(text); }, {"run", "expected a JSON object"});
}

TEST(RunConfig, RefusesValuesOutOfRange) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"steps", {"0", "-1", "1.5", "\"9\"", "10000000000000"}},
      {"warmup_steps", {"-1", "0.5"}},
      {"learning_rate", {"-1", "101", "\"1e-3\""}},
      {"final_learning_rate_ratio", {"-0.1", "1.1"}},
      {"batch_size", {"0", "2000000"}},
      {"accumulation", {"0", "-3"}},
      {"beta1", {"1", "-0.1"}},
      {"beta2", {"1", "2"}},
      {"eps", {"-1", "2"}},
      {"weight_decay", {"-0.1", "1000"}},
      {"decay_mask", {"\"none\"", "1"}},
      {"clip_norm", {"-1"}},
      {"dtype", {"\"f16\"", "32"}},
      {"seed", {"-1", "0.5", "18446744073709551615"}},
      {"init_std", {"-1", "11"}},
      {"evaluate_every", {"-1"}},
      {"save_every", {"-1"}}};
  for (const auto& [key, values] : cases)
    for (const char* value : values)
      // (clang 14 does not capture a structured binding as it is.)
      expect_error([&, name = key] { parse_train(fmt::format("\"{}\": {}", name, value)); },
                   {fmt::format("run: train.{}: expected", key), value});
  for (const char* value : {"0", "-1", "99999999"})
    expect_error(
        [&] { parse(fmt::format(R"({{"data": {{"text": "a", "sequence_length": {}}}}})", value)); },
        {"run: data.sequence_length: expected", value});
  expect_error([&] { parse_train(R"("steps": 5, "warmup_steps": 6)"); },
               {"run: train.warmup_steps: 6 is more than the 5 steps"});
}

class RunFile : public ::testing::Test {
 protected:
  RunFile() {
    std::ofstream(path_)
        << R"({"model": {"dim": 8, "n_head": 1}, "data": {"text": "a"}, "train": {"steps": 9}})";
  }
  test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "run.json";
};

TEST_F(RunFile, OverridesAreJsonOrText) {
  const RunConfig c = read_run_config(
      path_, {"train.learning_rate=1e-3", "train.steps=3", "train.steps=4",
              "data.tokenizer=bpe:300", "data.shuffle=false", "model.windows=[4,null]",
              "data.text=[\"b\",\"c\"]", "model.gelu=tanh", "train.dtype=\"f32\""});
  EXPECT_EQ(c.train.learning_rate, 1e-3);
  EXPECT_EQ(c.train.steps, 4);
  EXPECT_EQ(c.data.tokenizer, "bpe:300");
  EXPECT_FALSE(c.data.shuffle);
  EXPECT_EQ(c.model["windows"], nlohmann::json::parse("[4,null]"));
  EXPECT_EQ(c.model["gelu"], "tanh");
  EXPECT_EQ(c.model["dim"], 8);
  EXPECT_EQ(c.train.dtype, "f32");
  EXPECT_THAT(c.data.text, ElementsAre("b", "c"));
  // They are in what the run folder keeps.
  EXPECT_EQ(c.json["train"]["steps"], 4);
}

TEST_F(RunFile, OverridesMustNameAKey) {
  for (const char* text :
       {"", "=", "train", "train.steps", "=1", "train=1", ".steps=1", "train.=1"})
    expect_error([&] { read_run_config(path_, {text}); },
                 {fmt::format("{}: expected SECTION.KEY=VALUE", text)});
  expect_error([&] { read_run_config(path_, {"train.step=1"}); }, {path_, "unknown key 'step'"});
  expect_error([&] { read_run_config(path_, {"tran.steps=1"}); },
               {"tran.steps=1: unknown section 'tran', expected one of model, data, train"});
  expect_error([&] { read_run_config(path_, {"train.steps=many"}); },
               {path_, "train.steps", "many"});
  expect_error([&] { read_run_config(path_, {"data.text=\xFF"}); }, {"data.text: not valid UTF-8"});
  // Values that nest too deeply are taken for text, and then are of the wrong type.
  const std::string deep = "train.steps=" + std::string(100000, '[') + std::string(100000, ']');
  expect_error([&] { read_run_config(path_, {deep}); }, {"train.steps: expected a whole number"});
}

TEST_F(RunFile, FaultsNameTheFile) {
  expect_error([&] { read_run_config(folder_ / "absent.json", {}); }, {folder_ / "absent.json"});
  std::ofstream(path_) << "[]";
  expect_error([&] { read_run_config(path_, {"train.steps=1"}); }, {path_, "JSON object"});
  std::ofstream(path_) << "{";
  expect_error([&] { read_run_config(path_, {}); }, {path_, "not valid JSON"});
}

TEST(LearningRate, WarmsUpThenFollowsACosine) {
  TrainConfig c;
  c.steps = 12;
  c.warmup_steps = 4;
  c.learning_rate = 2;
  c.final_learning_rate_ratio = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 3), 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 4), 2);
  // Half way 1.1 = (2 + 0.2)/2, a quarter of the way 1.1 + 0.9·cos(π/4).
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 8), 1.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 6), 1.1 + 0.9 * std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 12), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 1000), 0.2);
  c.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 0), 2);
  c.warmup_steps = 12;
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 11), 2);
}

}  // namespace
}  // namespace dcformer
