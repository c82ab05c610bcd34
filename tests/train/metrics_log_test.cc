#include "dcformer/train/metrics_log.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dcformer/base/file.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

TEST(StepLines, KeepsEachStepOnceUpToTheStep) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "lines";
  replace_file(path,
               "{\"step\":1}\n{\"step\":2,\"x\":1}\nno JSON\n{\"step\":2,\"x\":2}\n{\"x\":3}\n"
               "[]\n{\"step\":\"3\"}\n{\"step\":3}\n{\"step\":4}\n{\"ste");
  {
    StepLines lines(path);
    EXPECT_EQ(lines.open(3), 3);
    lines.append({{"step", 4}, {"y", 0.5}});
    lines.sync();
  }
  EXPECT_EQ(read_file(path),
            "{\"step\":1}\n{\"step\":2,\"x\":1}\n{\"step\":3}\n{\"step\":4,\"y\":0.5}\n");
}

TEST(StepLines, NamesAFileThatCannotBeOpened) {
  const test::TemporaryFolder folder;
  StepLines absent(folder / "none/lines");
  test::expect_error([&] { absent.open(0); }, {folder / "none/lines", "No such file"});
}

TEST(MetricsLog, WritesWhatItIsTold) {
  const test::TemporaryFolder folder;
  {
    MetricsLog log(folder.path());
    log.open(0, 0);
    StepMetrics m;
    m.step = 1;
    m.loss = 2.5;
    m.gradient_norm = 3;
    m.clipped_gradient_norm = 1;
    m.parameter_norm = 7;
    m.learning_rate = 0.25;
    m.seconds = 2;
    m.tokens_per_second = 64;
    log.write(m);
    m.step = 2;
    m.loss = std::nan("");
    m.skipped = true;
    log.write(m);
    Evaluation e;
    e.loss = std::log(8.0);
    e.accuracy = 0.75;
    e.n_prediction = 12;
    log.write(2, e);
    e.bits_per_byte = 1.5;
    log.write(3, e);
  }
  EXPECT_EQ(
      read_file(folder / "metrics.jsonl"),
      "{\"step\":1,\"loss\":2.5,\"gradient_norm\":3.0,\"parameter_norm\":7.0,"
      "\"learning_rate\":0.25,\"seconds\":2.0,\"tokens_per_second\":64.0}\n"
      "{\"step\":2,\"loss\":null,\"gradient_norm\":3.0,\"parameter_norm\":7.0,"
      "\"learning_rate\":0.25,\"seconds\":2.0,\"tokens_per_second\":64.0,\"skipped\":true}\n");
  const std::string evaluations = read_file(folder / "evaluations.jsonl");
  const auto first = nlohmann::json::parse(evaluations.substr(0, evaluations.find('\n')));
  EXPECT_EQ(first.at("step"), 2);
  EXPECT_NEAR(first.at("perplexity"), 8, 1e-12);
  EXPECT_EQ(first.at("accuracy"), 0.75);
  EXPECT_EQ(first.at("n_prediction"), 12);
  EXPECT_FALSE(first.contains("bits_per_byte"));
  // The evaluation after step 3 was not part of the state that the run goes on from.
  MetricsLog again(folder.path());
  again.open(1, 2);
  EXPECT_EQ(read_file(folder / "evaluations.jsonl"),
            evaluations.substr(0, evaluations.find('\n') + 1));
  EXPECT_EQ(read_file(folder / "metrics.jsonl").find("\"step\":2"), std::string::npos);
}

}  // namespace
}  // namespace dcformer
