#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/run_tool.h"
#include "tests/support/temporary_folder.h"

namespace dcformer::test {

/// A folder with a text and a run file of a model that trains in a moment.
class SmallRun : public ::testing::Test {
 protected:
  SmallRun() {
    std::string text;
    for (int i = 0; i < 120; ++i)
      text += "line " + std::to_string(i) + " of a naïve text, and so on\n";
    write("text.txt", text);
    const nlohmann::json run = {{"model",
                                 {{"dim", 16},
                                  {"n_layer", 2},
                                  {"n_head", 2},
                                  {"intermediate_size", 32},
                                  {"block_size", 32},
                                  {"windows", {8, nullptr}}}},
                                {"data", {{"text", path("text.txt")}, {"sequence_length", 32}}},
                                {"train",
                                 {{"steps", 6},
                                  {"warmup_steps", 2},
                                  {"learning_rate", 0.01},
                                  {"init_std", 0.02},
                                  {"batch_size", 4},
                                  {"dtype", "f32"}}}};
    write("run.json", run.dump());
  }

  std::string path(const std::string& name) const { return folder_ / name; }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    EXPECT_TRUE(file.good()) << name;
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  /// `dcformer train run.json --output OUTPUT …`; expects success.
  ToolResult train(const std::string& output, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train", path("run.json"), "--output", path(output)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ToolResult result = run_tool(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    return result;
  }

  /// The lines of a file of JSON lines.
  std::vector<nlohmann::json> lines(const std::string& name) const {
    std::ifstream file(path(name));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  /// The lines of a run's metrics.
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    return lines(run + "/metrics.jsonl");
  }

  TemporaryFolder folder_;
};

}  // namespace dcformer::test
