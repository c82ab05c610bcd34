#include "dcformer/generate/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "dcformer/model/checkpoint.h"
#include "tests/io/expect_error.h"
#include "tests/support/golden.h"

namespace dcformer {
namespace {

using test::expect_error;

/// A model of 61 ids, a context of 64 and windows of 8.
class GeneratorTest : public ::testing::Test {
 protected:
  std::vector<int32_t> run(const std::vector<int32_t>& prompt, int64_t max_tokens,
                           const SamplingOptions& sampling = {}, int32_t stop_id = -1) {
    return generate(context_, *model_, prompt, max_tokens, stop_id, sampling,
                    [](int32_t) { return true; });
  }

  /// The most likely next token, by one pass over all ids and no caches.
  int32_t most_likely(const std::vector<int32_t>& ids) {
    const auto n = static_cast<int64_t>(ids.size());
    const Tensor logits = row_logits(context_, *model_, {1, n, ids}, 0);
    const float* last = logits.data<float>() + (n - 1) * 61;
    return static_cast<int32_t>(std::max_element(last, last + 61) - last);
  }

  Context context_{2};
  std::unique_ptr<LanguageModel> model_ =
      load_model(context_, test::golden_path("dcformer-window"), DType::f32);
  const std::vector<int32_t> prompt_ = {5, 9, 2, 33, 60, 0, 1, 17, 17, 4};
};

TEST_F(GeneratorTest, GreedyTakesTheMostLikelyAtEveryStep) {
  std::vector<int32_t> ids = prompt_;
  const std::vector<int32_t> tokens = run(prompt_, 20, {.temperature = 0});
  ASSERT_EQ(tokens.size(), 20u);
  for (const int32_t token : tokens) {
    EXPECT_EQ(token, most_likely(ids));
    ids.push_back(token);
  }
}

TEST_F(GeneratorTest, TheSeedDecides) {
  const auto tokens = run(prompt_, 30, {.seed = 7});
  EXPECT_EQ(run(prompt_, 30, {.seed = 7}), tokens);
  EXPECT_NE(run(prompt_, 30, {.seed = 8}), tokens);
  // Fewer tokens are the beginning of more.
  EXPECT_EQ(run(prompt_, 11, {.seed = 7}),
            std::vector<int32_t>(tokens.begin(), tokens.begin() + 11));
}

TEST_F(GeneratorTest, TellsOfEachTokenAndStopsWhenTold) {
  std::vector<int32_t> told;
  const auto tokens = generate(context_, *model_, prompt_, 30, -1, {.seed = 7}, [&](int32_t token) {
    told.push_back(token);
    return told.size() < 5;
  });
  EXPECT_EQ(told.size(), 5u);
  EXPECT_EQ(tokens, told);
}

TEST_F(GeneratorTest, StopsBeforeTheStopToken) {
  const auto tokens = run(prompt_, 30, {.seed = 7});
  const int32_t stop = tokens[4];
  const auto first = std::find(tokens.begin(), tokens.end(), stop);
  EXPECT_EQ(run(prompt_, 30, {.seed = 7}, stop), std::vector<int32_t>(tokens.begin(), first));
}

TEST_F(GeneratorTest, EndsWhereTheContextEnds) {
  EXPECT_TRUE(run(prompt_, 0).empty());
  EXPECT_EQ(run(prompt_, 1).size(), 1u);
  // Positions 10 … 63 hold tokens, and the last of them says one more.
  EXPECT_EQ(run(prompt_, 1000).size(), 55u);
  EXPECT_EQ(run(std::vector<int32_t>(63, 3), 1000).size(), 2u);
  EXPECT_EQ(run(std::vector<int32_t>(64, 3), 1000).size(), 1u);
}

TEST_F(GeneratorTest, RefusesPromptsThatCannotBe) {
  expect_error([&] { run({}, 5); }, {"prompt is empty"});
  expect_error([&] { run(std::vector<int32_t>(65, 3), 5); },
               {"the prompt has 65 tokens, more than the context of 64"});
  expect_error([&] { run({3, 61}, 5); }, {"61"});
  expect_error([&] { run({3, -1}, 5); }, {"-1"});
  expect_error([&] { run(prompt_, 5, {.temperature = -1}); }, {"temperature"});
}

TEST_F(GeneratorTest, RowLogitsRefusesRowsThatCannotBe) {
  const auto logits = [&](const std::vector<int32_t>& ids, int64_t prefill) {
    return row_logits(context_, *model_, {1, static_cast<int64_t>(ids.size()), ids}, prefill);
  };
  for (const int64_t prefill : {0, 1}) {
    expect_error([&] { logits({3, 61}, prefill); }, {"61"});
    expect_error([&] { logits(std::vector<int32_t>(65, 3), prefill); }, {"context of 64"});
  }
  expect_error([&] { logits({3}, -1); }, {"prefill is -1"});
  EXPECT_EQ(logits(std::vector<int32_t>(64, 3), 1).shape(), (Shape{1, 64, 61}));
}

}  // namespace
}  // namespace dcformer
