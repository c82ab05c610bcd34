#include "tests/reference/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/reference/bfloat16.h"
#include "tests/reference/embedding.h"
#include "tests/reference/linear.h"
#include "tests/reference/rms_norm.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_values.h"

namespace dcformer::reference {
namespace {

using test::golden_path;
using test::read_tensors;

// Both sides are computed in double precision; what is stored as float has 6e-8 of error.
constexpr double kDoubleTolerance = 1e-11;
constexpr double kFloatTolerance = 1e-7;

std::string test_name(std::string name) {
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

class ReferenceModelTraining : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return golden_path("training/" + GetParam()); }
  ModelConfig config_ = read_model_config(folder() + "/config.json");
  Parameters parameters_ = read_tensors(folder() + "/model.safetensors");
  test::Tensors expected_ = read_tensors(folder() + "/expected.safetensors");
  static constexpr int64_t kLength = 24;
  // The first of the five batches of two rows.
  std::vector<int32_t> ids_ = [this] {
    std::vector<int32_t> ids = test::to_ids(expected_.at("batches"));
    ids.resize(2 * kLength);
    return ids;
  }();
};

TEST_P(ReferenceModelTraining, GoldenLogits) {
  EXPECT_TRUE(test::norm_close(model_logits(config_, parameters_, ids_, kLength),
                               expected_.at("logits"), kFloatTolerance));
}

TEST_P(ReferenceModelTraining, GoldenLoss) {
  const double expected = expected_.at("losses")[0];
  EXPECT_NEAR(model_loss(config_, parameters_, ids_, kLength), expected, 1e-11 * expected);
}

// The golden gradient against differences of this model's loss, along directions in all parameters
// at once: the two come from different programs.
TEST_P(ReferenceModelTraining, GoldenGradientsFollowTheLoss) {
  std::vector<double> values, gradient;
  for (const auto& [name, tensor] : parameters_) {
    values.insert(values.end(), tensor.begin(), tensor.end());
    const std::vector<double>& part = expected_.at("gradient." + name);
    gradient.insert(gradient.end(), part.begin(), part.end());
  }
  const auto loss = [&](const std::vector<double>& at) {
    Parameters moved = parameters_;
    auto next = at.begin();
    for (auto& [name, tensor] : moved) {
      std::copy(next, next + tensor.size(), tensor.begin());
      next += tensor.size();
    }
    return model_loss(config_, moved, ids_, kLength);
  };
  EXPECT_TRUE(test::gradient_matches(loss, values, gradient,
                                     {.step = 2e-6, .tolerance = 2e-6, .n_direction = 2}));
}

// The distance that rounding makes is 3 to 40 % on these models (tests/golden/README.md).
TEST_P(ReferenceModelTraining, RoundingMovesTheLogitsALittle) {
  const std::vector<double> exact = model_logits(config_, parameters_, ids_, kLength);
  const std::vector<double> rounded = model_logits(config_, parameters_, ids_, kLength, true);
  const double distance = test::relative_distance(rounded, exact);
  EXPECT_GT(distance, 1e-3);
  EXPECT_LT(distance, 0.5);
}

// Weights of products are rounded, so rounding them beforehand changes nothing; the embedding
// table, norms and base projections are no operands of products. What is left between the second
// pair of runs is the rounding of activations.
TEST_P(ReferenceModelTraining, RoundsWeightsAndActivations) {
  Parameters rounded = parameters_;
  for (auto& [name, values] : rounded) {
    const bool operand = name != "tok_embeddings.weight" &&
                         name.find("norm") == std::string::npos && !name.ends_with("proj.w");
    if (operand) values = to_bfloat16(values);
  }
  const std::vector<double> expected = model_logits(config_, parameters_, ids_, kLength, true);
  EXPECT_TRUE(test::same_values(model_logits(config_, rounded, ids_, kLength, true), expected));
  EXPECT_FALSE(test::norm_close(model_logits(config_, rounded, ids_, kLength), expected, 1e-3));
  rounded["tok_embeddings.weight"] = to_bfloat16(rounded["tok_embeddings.weight"]);
  EXPECT_FALSE(
      test::norm_close(model_logits(config_, rounded, ids_, kLength, true), expected, 1e-4));
}

// Without layers one product is left, the output layer's.
TEST_P(ReferenceModelTraining, RoundsBothOperandsOfAProduct) {
  ModelConfig config = config_;
  config.n_layer = 0;
  const std::vector<double> x = embedding(ids_, parameters_["tok_embeddings.weight"], config.dim);
  const std::vector<double> normed = rms_norm(x, parameters_["norm.weight"], config.norm_eps);
  const std::vector<double> expected =
      linear(to_bfloat16(normed), to_bfloat16(parameters_["output.weight"]), {},
             static_cast<int>(config.dim));
  EXPECT_TRUE(test::same_values(model_logits(config, parameters_, ids_, kLength, true), expected));
}

INSTANTIATE_TEST_SUITE_P(Golden, ReferenceModelTraining,
                         ::testing::ValuesIn(test::golden_training_names()),
                         [](const auto& info) { return test_name(info.param); });

class ReferenceModelPublished : public ::testing::TestWithParam<test::GoldenPrefill> {};

TEST_P(ReferenceModelPublished, GoldenLogits) {
  const std::string folder = golden_path(GetParam().name);
  const ModelConfig config = read_model_config(folder + "/config.json");
  const test::Tensors expected = read_tensors(folder + "/expected.safetensors");
  const std::vector<int32_t> ids = test::to_ids(expected.at("input_ids"));
  const std::vector<double> logits =
      model_logits(config, read_tensors(folder + "/model.safetensors"), ids,
                   static_cast<int64_t>(ids.size()) / 2);
  EXPECT_TRUE(test::norm_close(logits, expected.at("logits_float64"), kDoubleTolerance));
  // The published float32 code, by a prefill and single steps through its caches.
  EXPECT_TRUE(test::max_close(logits, expected.at("logits"), GetParam().tolerance));
}

INSTANTIATE_TEST_SUITE_P(Golden, ReferenceModelPublished,
                         ::testing::ValuesIn(test::golden_prefills()),
                         [](const auto& info) { return test_name(info.param.name); });

}  // namespace
}  // namespace dcformer::reference
