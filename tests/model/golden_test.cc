#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dcformer/generate/generator.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/model/checkpoint.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"

// Golden models (tests/golden/README.md): what the published code, or the formulas in double
// precision, give for small random models. The tolerances are stated there.
namespace dcformer {
namespace {

struct PublishedCase {
  const char* folder;
  double tolerance;
  /// The published prefill, and one longer than the window.
  int64_t prefill, long_prefill;
};

class GoldenPublished : public ::testing::TestWithParam<PublishedCase> {};

TEST_P(GoldenPublished, LogitsInOnePassAndByAnyPrefill) {
  const PublishedCase& c = GetParam();
  Context context(2);
  const auto model = load_model(context, test::golden_path(c.folder), DType::f32);
  const auto file = SafetensorsFile::open(test::golden_path(c.folder) + "/expected.safetensors");
  const std::vector<double> expected =
      test::read_tensors(test::golden_path(c.folder) + "/expected.safetensors")
          .at("logits_float64");
  const IdRows rows = id_rows(file.tensor("input_ids"), "input_ids");
  for (int64_t prefill : {int64_t{0}, c.prefill, int64_t{1}, c.long_prefill})
    EXPECT_TRUE(test::max_close(row_logits(context, *model, rows, prefill).span<float>(), expected,
                                c.tolerance))
        << "prefill " << prefill;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenPublished,
                         ::testing::Values(PublishedCase{"dcformer-window", 1e-4, 12, 17},
                                           PublishedCase{"dcformer-no-qk-norm", 1e-4, 12, 11},
                                           PublishedCase{"dcformer-mgate", 1e-4, 12, 15},
                                           PublishedCase{"dcformer-six-heads", 1e-4, 7, 13},
                                           PublishedCase{"dcformer-lgll", 1e-3, 300, 290}),
                         [](const auto& info) { return test::test_name(info.param.folder); });

class GoldenTraining : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return test::golden_path("training/" + GetParam()); }
};

TEST_P(GoldenTraining, Logits) {
  Context context(2);
  const auto model = load_model(context, folder(), DType::f32);
  const auto file = SafetensorsFile::open(folder() + "/expected.safetensors");
  IdRows rows = id_rows(file.tensor("batches"), "batches");
  rows.n_row = 2;
  rows.ids.resize(static_cast<size_t>(2 * rows.length));
  const std::vector<double> expected =
      test::read_tensors(folder() + "/expected.safetensors").at("logits");
  EXPECT_TRUE(test::max_close(row_logits(context, *model, rows, 0).span<float>(), expected, 1e-4));
  EXPECT_TRUE(test::max_close(row_logits(context, *model, rows, 5).span<float>(), expected, 1e-4));
}

TEST_P(GoldenTraining, LossAndGradients) {
  const auto file = SafetensorsFile::open(folder() + "/expected.safetensors");
  const IdRows rows = id_rows(file.tensor("batches"), "batches");
  const test::Tensors expected = test::read_tensors(folder() + "/expected.safetensors");
  const ModelConfig config = read_model_config(folder());
  std::vector<float> first_run;
  for (int threads : {1, 2}) {
    Context context(threads);
    LanguageModel model(config,
                        Parameters::for_training(context, parameter_specs(config), DType::f32));
    load_weights(context, folder(), config, model.parameters());
    SequenceBatch batch;
    std::vector<int32_t> ids;
    std::vector<int32_t> targets;
    for (int64_t r = 0; r < 2; ++r) {
      const int32_t* row = rows.ids.data() + r * rows.length;
      ids.insert(ids.end(), row, row + rows.length - 1);
      targets.insert(targets.end(), row + 1, row + rows.length);
      batch.append(rows.length - 1);
    }
    const float scale = 1.0f / static_cast<float>(targets.size());
    const CrossEntropySum sum =
        model.loss_and_gradients(context, ids, targets, batch, {.scale = scale});
    ASSERT_EQ(sum.n_target, 46);
    const double loss = expected.at("losses")[0];
    EXPECT_NEAR(sum.loss * scale, loss, 1e-5 * loss);
    EXPECT_EQ(model.loss(context, ids, targets, batch).loss, sum.loss);
    for (const Parameter& p : model.parameters().all())
      EXPECT_TRUE(
          test::norm_close(p.gradient.span<float>(), expected.at("gradient." + p.spec.name), 5e-4))
          << p.spec.name;
    const auto gradients = model.parameters().gradients().span<float>();
    if (first_run.empty()) {
      first_run.assign(gradients.begin(), gradients.end());
    } else {
      EXPECT_TRUE(std::equal(gradients.begin(), gradients.end(), first_run.begin()))
          << "the gradients differ between 1 and 2 threads";
    }
  }
}

TEST_P(GoldenTraining, GradientsAreFinalWhenTheHookSaysSo) {
  Context context(2);
  const ModelConfig config = read_model_config(folder());
  LanguageModel model(config,
                      Parameters::for_training(context, parameter_specs(config), DType::f32));
  load_weights(context, folder(), config, model.parameters());
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6};
  SequenceBatch batch;
  batch.append(6);
  std::map<std::string, std::vector<float>> told;
  const auto on_final = [&](const Parameter& p) {
    const auto values = p.gradient.span<float>();
    EXPECT_TRUE(told.emplace(p.spec.name, std::vector<float>(values.begin(), values.end())).second)
        << p.spec.name;
  };
  model.loss_and_gradients(context, ids, ids, batch, {.on_final = on_final});
  EXPECT_EQ(told.size(), model.parameters().all().size());
  for (const Parameter& p : model.parameters().all())
    EXPECT_TRUE(
        std::equal(told[p.spec.name].begin(), told[p.spec.name].end(), p.gradient.data<float>()))
        << p.spec.name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTraining, ::testing::ValuesIn(test::golden_training_names()),
                         [](const auto& info) { return test::test_name(info.param); });

}  // namespace
}  // namespace dcformer
