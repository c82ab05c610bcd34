#include "dcformer/model/published_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "dcformer/base/file.h"
#include "dcformer/generate/generator.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/io/tensor_folder.h"
#include "dcformer/model/checkpoint.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

// Files as the published code writes them: buffers and merged copies beside the parameters, shards,
// halves of floats, parts of what is one parameter here.
namespace dcformer {
namespace {

using ::testing::HasSubstr;

// The logits of a folder in one pass, against those of `expected.safetensors` under `name`.
::testing::AssertionResult gives(const std::string& folder, const char* name,
                                 CompositionWeights choice, double tolerance = 1e-4) {
  Context context(2);
  const std::string path = test::golden_path(folder);
  const auto model = load_model(context, path, DType::f32, choice);
  const auto file = SafetensorsFile::open(path + "/expected.safetensors");
  const IdRows rows = id_rows(file.tensor("input_ids"), "input_ids");
  return test::max_close(row_logits(context, *model, rows, 0).span<float>(),
                         test::read_tensors(path + "/expected.safetensors").at(name), tolerance);
}

class PublishedContainers : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedContainers, GiveTheLogitsOfTheirRoundedWeights) {
  EXPECT_TRUE(gives(GetParam(), "logits_float64", CompositionWeights::automatic));
}

INSTANTIATE_TEST_SUITE_P(All, PublishedContainers,
                         ::testing::Values("containers/safetensors-bf16-shards",
                                           "containers/bin-bf16-shards", "containers/bin-f16",
                                           "containers/bin-f32-legacy"),
                         [](const auto& info) { return test::test_name(info.param); });

TEST(PublishedWeights, TrainedCopiesAreTakenAndStaleOnesAreNot) {
  using enum CompositionWeights;
  EXPECT_TRUE(gives("dcformer-merged", "logits_float64", automatic));
  EXPECT_TRUE(gives("dcformer-merged", "logits_float64", merged));
  EXPECT_TRUE(gives("dcformer-merged", "logits_if_unmerged_float64", original));
  EXPECT_TRUE(gives("dcformer-stale-merged", "logits_float64", automatic));
  EXPECT_TRUE(gives("dcformer-stale-merged", "logits_float64", original));
  EXPECT_TRUE(gives("dcformer-stale-merged", "logits_if_merged_float64", merged));
}

/// The tensors of dcformer-window, changed and written to a folder of their own.
class ChangedModel {
 public:
  using Tensors = std::vector<std::pair<std::string, Tensor>>;
  explicit ChangedModel(const std::function<void(Context&, Tensors&)>& change) {
    const std::string golden = test::golden_path("dcformer-window");
    const auto file = SafetensorsFile::open(golden + "/model.safetensors");
    Tensors tensors;
    for (const auto& entry : file.entries()) tensors.emplace_back(entry.name, file.tensor(entry));
    change(context, tensors);
    write_safetensors(folder / "model.safetensors", tensors);
    std::filesystem::copy(golden + "/config.json", folder / "config.json");
    config = read_model_config(folder.path());
    specs = parameter_specs(config);
  }

  std::string message(CompositionWeights choice = CompositionWeights::automatic) const {
    try {
      const auto source = open_tensor_folder(folder.path());
      const PublishedWeights weights(*source, config, specs, choice);
      return weights.warnings().empty() ? "" : weights.warnings()[0];
    } catch (const Error& error) {
      return std::string("error: ") + error.what();
    }
  }

  Context context{1};
  test::TemporaryFolder folder;
  ModelConfig config;
  std::vector<ParameterSpec> specs;
};

Tensor rows_of(const Tensor& t, int64_t begin, int64_t count, Context& context) {
  const int64_t width = t.shape()[1];
  const Tensor part = Tensor::empty(context, DType::f32, {count, width});
  std::copy_n(t.data<float>() + begin * width, count * width, part.data<float>());
  return part;
}

TEST(PublishedWeights, QueryKeyAndValueInPartsAreJoined) {
  const ChangedModel model([](Context& context, ChangedModel::Tensors& tensors) {
    ChangedModel::Tensors changed;
    for (const auto& [name, tensor] : tensors) {
      const size_t at = name.find("wqkv");
      if (at == std::string::npos) {
        changed.emplace_back(name, tensor);
        continue;
      }
      const std::string stem = name.substr(0, at);
      const int64_t third = tensor.shape()[0] / 3;
      changed.emplace_back(stem + "wq.weight", rows_of(tensor, 0, third, context));
      changed.emplace_back(stem + "wk.weight", rows_of(tensor, third, third, context));
      changed.emplace_back(stem + "wv.weight", rows_of(tensor, 2 * third, third, context));
    }
    tensors = changed;
  });
  EXPECT_EQ(model.message(), "");
  Context context(1);
  const auto whole = load_model(context, test::golden_path("dcformer-window"), DType::f32);
  const auto joined = load_model(context, model.folder.path(), DType::f32);
  for (size_t i = 0; i < whole->parameters().all().size(); ++i)
    EXPECT_TRUE(test::same_values(joined->parameters().all()[i].value.span<float>(),
                                  whole->parameters().all()[i].value.span<float>()));
}

TEST(PublishedWeights, NamesWhatIsMissingMisshapenOrOfNoUse) {
  const auto without = [](const std::string& ending) {
    return ChangedModel([&](Context&, ChangedModel::Tensors& tensors) {
             std::erase_if(tensors, [&](const auto& t) { return t.first.ends_with(ending); });
           })
        .message();
  };
  EXPECT_THAT(without("layers.1.attention.wo.weight"),
              ::testing::AllOf(HasSubstr("error: "), HasSubstr("1 tensor is missing"),
                               HasSubstr("'layers.1.attention.wo.weight'")));
  EXPECT_THAT(without("w1.weight"), HasSubstr("tensors are missing: 'layers.0.feed_forward.w1"));
  const ChangedModel misshapen([](Context& context, ChangedModel::Tensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name == "norm.weight") tensor = Tensor::zeros(context, DType::f32, {7});
  });
  EXPECT_THAT(misshapen.message(), HasSubstr("tensor 'norm.weight' has shape [7], expected [32]"));
  const ChangedModel whole_numbers([](Context& context, ChangedModel::Tensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name == "norm.weight") tensor = Tensor::zeros(context, DType::i32, {32});
  });
  EXPECT_THAT(whole_numbers.message(), HasSubstr("tensor 'norm.weight' is i32, expected f32"));
  const ChangedModel more([](Context& context, ChangedModel::Tensors& tensors) {
    for (const char* name : {"layers.0.attention.kv_cache.k_cache", "lm_head.extra"})
      tensors.emplace_back(name, Tensor::zeros(context, DType::f32, {2}));
  });
  EXPECT_THAT(more.message(), HasSubstr("1 tensor is of no use to this configuration: "
                                        "'lm_head.extra'"));
  EXPECT_THAT(more.message(CompositionWeights::merged),
              HasSubstr("has no merged composition weights"));
}

TEST(PublishedWeights, RefusesAnUnknownChoice) {
  EXPECT_EQ(parse_composition_weights("merged"), CompositionWeights::merged);
  EXPECT_THROW(parse_composition_weights("both"), Error);
}

}  // namespace
}  // namespace dcformer
