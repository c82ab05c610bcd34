#include "dcformer/model/maxtext.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dcformer/generate/generator.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/model/checkpoint.h"
#include "dcformer/model/language_model.h"
#include "tests/io/expect_error.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

// Checkpoints as the published JAX code names and stacks them (tests/golden/README.md).
namespace dcformer {
namespace {

class MaxText : public ::testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return test::golden_path(std::string("maxtext/") + GetParam()); }
};

TEST_P(MaxText, GivesTheLogits) {
  Context context(2);
  const ModelConfig config = read_model_config(folder());
  const auto source = open_maxtext(folder(), config);
  EXPECT_EQ(source->warnings(), std::vector<std::string>());
  std::vector<Tensor> values;
  for (const ParameterSpec& spec : parameter_specs(config)) {
    values.push_back(Tensor::empty(context, DType::f32, spec.shape));
    source->read(spec.name, 0, values.back().span<float>());
  }
  LanguageModel model(config, Parameters::for_inference(context, parameter_specs(config),
                                                        std::move(values), DType::f32));
  const std::string expected = folder() + "/expected.safetensors";
  const test::Tensors tensors = test::read_tensors(expected);
  const auto logits = tensors.find("logits_float64");
  const IdRows rows = id_rows(SafetensorsFile::open(expected).tensor("input_ids"), "input_ids");
  for (const int64_t prefill : {0, 1, 11})
    EXPECT_TRUE(test::max_close(row_logits(context, model, rows, prefill).span<float>(),
                                logits != tensors.end() ? logits->second : tensors.at("logits"),
                                1e-4))
        << "prefill " << prefill;
}

TEST_P(MaxText, RangesArePartsOfTheWhole) {
  const ModelConfig config = read_model_config(folder());
  const auto source = open_maxtext(folder(), config);
  for (const StoredTensor& tensor : source->tensors()) {
    const int64_t numel = tensor.shape.numel();
    std::vector<float> whole(static_cast<size_t>(numel));
    source->read(tensor.name, 0, std::span(whole));
    for (const int64_t begin : {int64_t{0}, int64_t{5}, numel / 2 + 1}) {
      const int64_t n = std::min<int64_t>(numel - begin, numel / 3 + 1);
      if (n <= 0) continue;
      std::vector<float> part(static_cast<size_t>(n));
      source->read(tensor.name, begin, std::span(part));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << tensor.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MaxText,
                         ::testing::Values("lg", "lg-base-projection", "lg-chunks-bf16"),
                         [](const auto& info) { return test::test_name(info.param); });

class MaxTextFaults : public ::testing::Test {
 protected:
  MaxTextFaults() : config_(read_model_config(golden_)) {
    std::filesystem::copy(golden_ + "/checkpoint/40/state", folder_.path() + "/state",
                          std::filesystem::copy_options::recursive);
  }
  void expect_refused(const std::vector<std::string>& parts) {
    test::expect_error([&] { open_maxtext(folder_.path(), config_); }, parts);
  }
  std::string leaf(const std::string& name) const { return folder_ / ("state/params." + name); }

  std::string golden_ = test::golden_path("maxtext/lg");
  ModelConfig config_;
  test::TemporaryFolder folder_;
};

TEST_F(MaxTextFaults, MissingLeavesAreNamed) {
  std::filesystem::remove_all(leaf("decoder.layers.mlp_1.wo.kernel"));
  expect_refused({"leaf 'params.decoder.layers.mlp_1.wo.kernel' is missing"});
}

TEST_F(MaxTextFaults, TheConfigurationMustAgree) {
  config_.n_layer = 6;
  expect_refused({"holds 4 layers in blocks of 2", "n_layer is 6"});
  config_.n_layer = 4;
  config_.intermediate_size = 64;
  expect_refused({"mlp_0.wi_0.kernel: shape [32,2,56], expected [32,blocks of layers,64]"});
  config_.intermediate_size = 56;
  config_.vocab_size = 62;
  expect_refused({"embedding: shape [61,32], expected [62,32]"});
  config_.vocab_size = 61;
  config_.base_projection = true;
  expect_refused({"pre_proj.w' is missing"});
  config_.base_projection = false;
  config_.mgate = true;
  config_.mgate_dim = 8;
  expect_refused({"no leaf", "layers.0.feed_forward.mg.weight"});
}

TEST_F(MaxTextFaults, APaddedVocabularyIsCut) {
  const auto whole = open_maxtext(folder_.path(), config_);
  config_.vocab_size = 50;
  const auto cut = open_maxtext(folder_.path(), config_);
  for (const char* name : {"tok_embeddings.weight", "output.weight"}) {
    EXPECT_EQ(cut->at(name).shape, (Shape{50, 32}));
    std::vector<float> some(50 * 32);
    std::vector<float> all(61 * 32);
    cut->read(name, 0, std::span(some));
    whole->read(name, 0, std::span(all));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << name;
  }
}

TEST_F(MaxTextFaults, LeavesOfNoUseAreNamed) {
  config_.use_qk_norm = false;
  const auto source = open_maxtext(folder_.path(), config_);
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_NE(source->warnings()[0].find("4 leaves"), std::string::npos);
  EXPECT_NE(source->warnings()[0].find("self_attention_0.k_norm.scale"), std::string::npos);
}

}  // namespace
}  // namespace dcformer
