#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/golden.h"
#include "tests/support/run_tool.h"
#include "tests/support/temporary_folder.h"

// Faults in input: one line `error: …`, exit code 1; wrong usage: 2.
namespace dcformer {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class BadInput : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  /// A run file that works, on a text of `bytes`.
  nlohmann::json run_of(const std::string& bytes) const {
    return {{"model",
             {{"dim", 16},
              {"n_layer", 1},
              {"n_head", 2},
              {"intermediate_size", 32},
              {"block_size", 32},
              {"windows", {8, nullptr}}}},
            {"data", {{"text", write("text.txt", bytes)}, {"sequence_length", 16}}},
            {"train", {{"steps", 2}, {"batch_size", 2}, {"dtype", "f32"}}}};
  }
  nlohmann::json good_run() const {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "a line of text\n";
    return run_of(text);
  }

  test::ToolResult train(const nlohmann::json& run, const std::string& output = "run") const {
    return test::run_tool({"train", write("run.json", run.dump()), "--output", path(output)});
  }

  static void expect_fault(const test::ToolResult& result, const std::string& text) {
    EXPECT_EQ(result.exit_code, 1) << result.error;
    // The log may have spoken before; the fault is the last line, and the only one of its kind.
    const size_t begin = result.error.find("error: ");
    ASSERT_NE(begin, std::string::npos) << result.error;
    const std::string fault = result.error.substr(begin);
    EXPECT_EQ(std::count(fault.begin(), fault.end(), '\n'), 1) << fault;
    EXPECT_THAT(fault, HasSubstr(text));
  }

  test::TemporaryFolder folder_;
};

TEST_F(BadInput, AGoodRunIsNone) {
  const auto result = train(good_run());
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.output, StartsWith("validation: "));
}

TEST_F(BadInput, Texts) {
  expect_fault(train(run_of("")), "text.txt: the file is empty");
  expect_fault(train(run_of("short")), "too few for a row");
  expect_fault(train(run_of("good bytes and then \xff\n")),
               "text.txt: not valid UTF-8 at byte offset 20");
  expect_fault(train(run_of("\x1f\x8b\x08 packed")), "its name must then end in .gz");
  auto run = good_run();
  run["data"]["text"] = path("absent.txt");
  expect_fault(train(run), "absent.txt: No such file");
  run["data"]["text"] = "";
  expect_fault(train(run), "run.json: data.text: expected the name of a file");
  run["data"]["text"] = {path("text.txt"), ""};
  expect_fault(train(run), "run.json: data.text: expected the name of a file");
  run["data"]["text"] = folder_.path();
  expect_fault(train(run), "is a folder");
  run["data"]["text"] = write("text.txt.gz", "no gzip at all, but long enough");
  expect_fault(train(run), "text.txt.gz: not valid gzip data");
}

TEST_F(BadInput, Keys) {
  const auto with = [&](const char* section, const char* key, const nlohmann::json& value) {
    auto run = good_run();
    run[section][key] = value;
    return train(run);
  };
  expect_fault(with("train", "learning_rat", 1),
               "unknown key 'learning_rat'; did you mean 'learning_rate'?");
  expect_fault(with("model", "n_heads", 2), "unknown key 'n_heads'; did you mean 'n_head'?");
  expect_fault(with("train", "steps", "many"), "train.steps: expected a whole number");
  expect_fault(with("train", "steps", 0), "train.steps: expected a whole number from 1");
  expect_fault(with("data", "shuffle", 1), "data.shuffle: expected true or false");
  expect_fault(with("model", "n_head", 3), "n_head: 3 does not divide dim 16");
  expect_fault(with("model", "n_groups", 3), "n_groups: 3 does not divide n_head 2");
  expect_fault(with("model", "rotary_pct", 0.4), "rotary width 3");
  expect_fault(with("model", "windows", {0}),
               "windows: expected a list of window lengths of at least 1");
  expect_fault(with("model", "vocab_size", 100),
               "vocab_size: 100 is less than the tokenizer's 257");
  expect_fault(with("data", "sequence_length", 33),
               "block_size: 32 is less than the 33 tokens of a row");
  expect_fault(with("data", "rows", "x.safetensors"), "expected either 'text' or 'rows'");
  expect_fault(with("data", "tokenizer", "bpe:many"), "expected byte, bpe:N or a tokenizer's path");
  auto run = good_run();
  run["model"].erase("windows");
  run["model"]["window_size"] = 0;
  expect_fault(train(run), "window_size: expected a whole number from 1");
  run = good_run();
  run["extra"] = 1;
  expect_fault(train(run), "run.json: unknown section 'extra', expected one of model, data, train");
  expect_fault(
      test::run_tool({"train", write("broken.json", "{\"model\": "), "--output", path("run")}),
      "broken.json: not valid JSON: parse error at line 1, column 11");
  expect_fault(
      test::run_tool({"train", write("twice.json", R"({"train": {"steps": 1, "steps": 2}})"),
                      "--output", path("run")}),
      "key 'steps' occurs twice");
}

TEST_F(BadInput, Rows) {
  auto run = good_run();
  run["data"].erase("text");
  run["model"]["vocab_size"] = 40;
  run["data"]["rows"] = test::golden_path("training/plain/expected.safetensors") + ":batches";
  expect_fault(train(run), "is outside the vocabulary of 40");
  run["model"]["block_size"] = 20;
  expect_fault(train(run), "block_size: 20 is less than the 23 tokens of a row");
  run["data"]["rows"] = test::golden_path("training/plain/expected.safetensors") + ":absent";
  expect_fault(train(run), "no tensor 'absent'");
  run["data"]["rows"] = write("broken.safetensors", "01234567890123456789");
  expect_fault(train(run), "broken.safetensors: its header claims");
}

TEST_F(BadInput, RunFolders) {
  ASSERT_EQ(train(good_run()).exit_code, 0);
  expect_fault(train(good_run()), "holds a run already; continue it with --resume");
  auto run = good_run();
  run["train"]["batch_size"] = 3;
  expect_fault(
      test::run_tool({"train", write("run.json", run.dump()), "--output", path("run"), "--resume"}),
      "train.batch_size was 2 and is 3, which a run cannot change");
  expect_fault(train(good_run(), "text.txt/run"), "text.txt is not a folder");
  std::filesystem::create_directory(path("other"));
  write("other/letter.txt", "dear");
  expect_fault(train(good_run(), "other"), "is not empty");
  expect_fault(test::run_tool({"train", write("run.json", good_run().dump()), "--output",
                               path("none"), "--resume"}),
               "holds no run to resume");
}

TEST_F(BadInput, Prompts) {
  ASSERT_EQ(train(good_run()).exit_code, 0);
  const std::string prompt(40, 'a');
  EXPECT_EQ(test::run_tool({"generate", path("run"), "--prompt", prompt}).output, "");
  expect_fault(test::run_tool({"generate", path("run"), "--prompt", prompt}),
               "the prompt has 40 tokens, more than the context of 32");
  expect_fault(test::run_tool({"generate", path("nowhere")}), "no such folder");
  expect_fault(test::run_tool({"generate", path("run"), "--prompt-file", path("absent")}),
               "absent: No such file");
}

TEST_F(BadInput, Logits) {
  const std::string model = test::golden_path("dcformer-window");
  const std::string tokens = test::golden_path("dcformer-lgll") + "/expected.safetensors:input_ids";
  expect_fault(
      test::run_tool({"logits", model, "--tokens", tokens, "--output", path("l.safetensors")}),
      tokens + ": rows of 320 ids, more than the context of 64");
  expect_fault(test::run_tool({"logits", model, "--tokens", path("absent.safetensors"), "--output",
                               path("l.safetensors")}),
               "No such file");
  expect_fault(test::run_tool({"logits", model, "--tokens", model + "/model.safetensors",
                               "--output", path("l.safetensors")}),
               "none is 'input_ids'");
  // Before the model is read: an output that nothing could be written to.
  const std::string good = model + "/expected.safetensors";
  for (const std::string& output : {folder_.path(), std::string("/dev/null")}) {
    expect_fault(test::run_tool({"logits", path("absent"), "--tokens", good, "--output", output}),
                 output + ": is not a regular file");
    EXPECT_FALSE(std::filesystem::is_regular_file(output));
  }
  const std::string copy = path("ids.safetensors");
  std::filesystem::copy(good, copy);
  std::filesystem::create_hard_link(copy, path("same.safetensors"));
  expect_fault(test::run_tool({"logits", path("absent"), "--tokens", copy, "--output",
                               path("same.safetensors")}),
               "is the file of the tokens");
  EXPECT_EQ(std::filesystem::file_size(copy), std::filesystem::file_size(good));
}

TEST_F(BadInput, TheModelSectionIsReadWithTheRunFile) {
  auto run = good_run();
  run["data"]["text"] = path("absent.txt");
  const auto with = [&](const char* key, const nlohmann::json& value) {
    auto changed = run;
    changed["model"][key] = value;
    return train(changed);
  };
  expect_fault(with("n_heads", 2), "run.json: model: unknown key 'n_heads'");
  expect_fault(with("dim", "wide"), "run.json: model.dim: expected a whole number");
  expect_fault(with("n_head", 3), "run.json: model.n_head: 3 does not divide dim 16");
  expect_fault(with("vocab_size", 0), "run.json: model.vocab_size: expected a whole number");
}

TEST_F(BadInput, PathsThatTheSystemRefuses) {
  const std::string name(300, 'n');
  expect_fault(test::run_tool({"info", name}), name + ": File name too long");
}

TEST_F(BadInput, ADamagedListOfCheckpointsMayBeRemoved) {
  ASSERT_EQ(train(good_run()).exit_code, 0);
  write("run/checkpoints.json", "{");
  const std::vector<std::string> resume = {"train", "--resume", "--output", path("run")};
  expect_fault(test::run_tool(resume), "the file may be removed");
  std::filesystem::remove(path("run/checkpoints.json"));
  EXPECT_EQ(test::run_tool(resume).exit_code, 0);
}

TEST_F(BadInput, ATokenizerThatTheModelIsTooSmallFor) {
  const std::string model = path("model");
  std::filesystem::create_directory(model);
  for (const char* name : {"/config.json", "/model.safetensors"})
    std::filesystem::copy(test::golden_path("dcformer-window") + name, model + name);
  write("model/tokenizer_config.json", R"({"tokenizer_class": "ByteTokenizer"})");
  const auto result = test::run_tool({"generate", model, "--prompt", "a"});
  EXPECT_EQ(result.output, "");
  expect_fault(result,
               model + ": the tokenizer has 257 ids, more than the model's vocabulary of 61");
  // What is wrong with the prompt is said before the model is looked for.
  expect_fault(test::run_tool({"generate", path("nowhere"), "--prompt-file", path("absent")}),
               "absent: No such file");
}

}  // namespace
}  // namespace dcformer
