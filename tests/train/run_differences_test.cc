#include "dcformer/train/run_differences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dcformer/io/json_file.h"

namespace dcformer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RunConfig run(const std::string& text) { return parse_run_config(parse_json(text, "run"), "run"); }

std::vector<std::string> texts(const std::string& before, const std::string& after) {
  std::vector<std::string> all;
  for (const RunDifference& d : run_differences(run(before), run(after)))
    all.push_back(d.text() + (d.allowed ? "" : " !"));
  return all;
}

const char* const kBase = R"({"data": {"text": "a"}, "train": {"steps": 2000, "batch_size": 4}})";

TEST(RunDifferences, DefaultsAreValues) {
  EXPECT_THAT(texts(kBase, R"({"model": {"n_layer": 32, "window_size": 256, "windows": null},
                               "data": {"text": ["a"], "shuffle": true},
                               "train": {"steps": 2e3, "batch_size": 4, "warmup_steps": 100}})"),
              IsEmpty());
  EXPECT_THAT(texts(R"({"model": {"window_type": "LG"}, "data": {"text": "a"}})",
                    R"({"model": {"windows": [256, null]}, "data": {"text": "a"}})"),
              IsEmpty());
}

TEST(RunDifferences, SaysWhatMayAndMayNotChange) {
  EXPECT_THAT(texts(kBase, R"({"data": {"text": "b", "seed": 2},
                               "train": {"steps": 3000, "batch_size": 4, "save_every": 10}})"),
              ElementsAre("data.seed was 1 and is 2 !", R"(data.text was ["a"] and is ["b"])",
                          "train.save_every was 0 and is 10", "train.steps was 2000 and is 3000"));
  EXPECT_THAT(texts(kBase, R"({"model": {"dim": 1280, "vocab_size": 9}, "data": {"text": "a"},
                       "train": {"steps": 2000, "batch_size": 4, "learning_rate": 1}})"),
              ElementsAre("model.dim was 2560 and is 1280 !", "model.head_dim was 80 and is 40 !",
                          "model.intermediate_size was 6912 and is 3584 !",
                          "model.vocab_size was null and is 9 !",
                          "train.learning_rate was 0.0003 and is 1.0 !"));
}

TEST(RunDifferences, TheRowsOfAnUpdateMayBeCutInOtherPasses) {
  EXPECT_THAT(texts(kBase, R"({"data": {"text": "a"},
                               "train": {"steps": 2000, "batch_size": 2, "accumulation": 2}})"),
              ElementsAre("train.accumulation was 1 and is 2", "train.batch_size was 4 and is 2"));
  EXPECT_THAT(texts(kBase, R"({"data": {"text": "a"}, "train": {"steps": 2000, "batch_size": 2}})"),
              ElementsAre("train.batch_size was 4 and is 2 !"));
}

}  // namespace
}  // namespace dcformer
