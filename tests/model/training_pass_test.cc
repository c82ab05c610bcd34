#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dcformer/io/json_file.h"
#include "dcformer/model/checkpoint.h"
#include "dcformer/model/language_model.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/random_values.h"

namespace dcformer {
namespace {

/// A golden model made ready for training, two rows of random ids.
struct Problem {
  Problem(Context& context, const std::string& name, DType dtype, double dropout,
          double dynamic_dropout)
      : model(config_of(name, dropout, dynamic_dropout), parameters_of(context, name, dtype)) {
    load_weights(context, test::golden_path(name), model.config(), model.parameters());
    const auto vocabulary = static_cast<int32_t>(model.config().vocab_size);
    ids = test::random_integers(40, 1, vocabulary);
    targets = test::random_integers(40, 2, vocabulary);
    batch.append(23);
    batch.append(17);
  }

  static ModelConfig config_of(const std::string& name, double dropout, double dynamic_dropout) {
    ModelConfig config = read_model_config(test::golden_path(name));
    config.dropout = dropout;
    config.dynamic_dropout = dynamic_dropout;
    return config;
  }
  static Parameters parameters_of(Context& context, const std::string& name, DType dtype) {
    const auto specs = parameter_specs(read_model_config(test::golden_path(name)));
    return Parameters::for_training(context, specs, dtype);
  }

  double loss_and_gradients(Context& context, const LanguageModel::TrainingPass& pass) {
    model.parameters().zero_gradients(context);
    return model.loss_and_gradients(context, ids, targets, batch, pass).loss;
  }
  std::vector<float> gradients() const {
    const auto span = model.parameters().gradients().span<float>();
    return {span.begin(), span.end()};
  }

  LanguageModel model;
  std::vector<int32_t> ids;
  std::vector<int32_t> targets;
  SequenceBatch batch;
};

class TrainingPass : public ::testing::TestWithParam<std::string> {};

TEST_P(TrainingPass, ActivationCheckpointingChangesNoBit) {
  Context context(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double rate : {0.0, 0.25}) {
      Problem p(context, "training/" + GetParam(), dtype, rate, rate);
      LanguageModel::TrainingPass pass;
      pass.dropout = {7, 3, 100};
      const double loss = p.loss_and_gradients(context, pass);
      const auto gradients = p.gradients();
      pass.checkpoint_activations = true;
      EXPECT_EQ(p.loss_and_gradients(context, pass), loss);
      EXPECT_EQ(p.gradients(), gradients) << name_of(dtype) << " " << rate;
    }
}

// Along its own direction the gradient's length is the loss's slope: central differences of the
// loss, whose masks stay the same.
TEST_P(TrainingPass, GradientsWithDropoutAreTheLosssSlope) {
  Context context(2);
  for (const auto& [dropout, dynamic] : {std::pair(0.3, 0.0), {0.0, 0.4}, {0.2, 0.2}}) {
    Problem p(context, "training/" + GetParam(), DType::f32, dropout, dynamic);
    if (!p.model.config().has_dynamic() && dropout == 0) continue;
    LanguageModel::TrainingPass pass;
    pass.scale = 1.0f / 40;
    pass.dropout = {7, 3, 100};
    p.loss_and_gradients(context, pass);
    const auto gradients = p.gradients();
    double square = 0;
    for (const float g : gradients) square += double{g} * g;
    const double norm = std::sqrt(square);
    const auto values = p.model.parameters().values().span<float>();
    const std::vector<float> start(values.begin(), values.end());
    const auto loss_at = [&](double step) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(start[i] + step * gradients[i] / norm);
      p.model.parameters().refresh(context);
      return p.loss_and_gradients(context, pass) / 40;
    };
    // A step that changes the loss by 1e-3: these models are curved so that larger ones tell
    // nothing, and the mean of forty f32 losses of about 4 carries some 1e-6 of error.
    const double step = 1e-3 / norm;
    const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
    EXPECT_NEAR(slope / norm, 1, 1e-2) << dropout << " " << dynamic;
  }
}

TEST_P(TrainingPass, DropoutTouchesTrainingAlone) {
  Context context(1);
  Problem with(context, "training/" + GetParam(), DType::f32, 0.5, 0.5);
  Problem without(context, "training/" + GetParam(), DType::f32, 0, 0);
  EXPECT_EQ(with.model.loss(context, with.ids, with.targets, with.batch).loss,
            without.model.loss(context, with.ids, with.targets, with.batch).loss);
  LanguageModel::TrainingPass pass;
  pass.dropout = {7, 3, 0};
  const double loss = with.loss_and_gradients(context, pass);
  EXPECT_NE(loss, without.loss_and_gradients(context, pass));
  pass.dropout.step = 4;
  EXPECT_NE(with.loss_and_gradients(context, pass), loss);
}

INSTANTIATE_TEST_SUITE_P(All, TrainingPass, ::testing::ValuesIn(test::golden_training_names()),
                         [](const auto& info) { return test::test_name(info.param); });

TEST(FirstNotFinite, NamesThePart) {
  Context context(1);
  const auto where = [&](const std::string& parameter, float value) {
    Problem p(context, "training/dcformer", DType::f32, 0, 0);
    const Tensor& t = p.model.parameters().at(parameter).value;
    for (float& x : t.span<float>()) x = value;
    return p.model.first_not_finite(context, p.ids, p.targets, p.batch);
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(where("norm.weight", 1), "");
  EXPECT_EQ(where("tok_embeddings.weight", nan), "tok_embeddings");
  EXPECT_EQ(where("layers.0.attention.wo.weight", infinity), "layers.0");
  EXPECT_EQ(where("layers.1.feed_forward.w2.weight", nan), "layers.1");
  EXPECT_EQ(where("output.weight", nan), "output");
  // Finite weights whose product overflows.
  EXPECT_EQ(where("layers.1.ffn_norm.weight", 1e30f), "layers.1");
}

}  // namespace
}  // namespace dcformer
