#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "dcformer/generate/generator.h"
#include "dcformer/model/checkpoint.h"
#include "tests/reference/model.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/random_values.h"

namespace dcformer {
namespace {

/// Hidden states of `ids` in steps of `step` tokens through the caches.
std::vector<float> logits_in_steps(Context& context, const LanguageModel& model,
                                   const std::vector<int32_t>& ids, int64_t step) {
  SequenceCache cache(model.config(), model.parameters().compute_dtype());
  std::vector<float> all;
  for (size_t done = 0; done < ids.size(); done += static_cast<size_t>(step)) {
    const size_t n = std::min(static_cast<size_t>(step), ids.size() - done);
    SequenceBatch batch;
    batch.append(static_cast<int64_t>(n), cache);
    const Tensor hidden = model.forward(context, std::span(ids).subspan(done, n), batch);
    const Tensor logits =
        Tensor::empty(context, DType::f32, {static_cast<int64_t>(n), model.config().vocab_size});
    model.logits(context, hidden.matrix(), logits.matrix().typed<float>());
    all.insert(all.end(), logits.span<float>().begin(), logits.span<float>().end());
  }
  return all;
}

class GoldenDecoding : public ::testing::TestWithParam<const char*> {};

// Past the windows of 8 (60 tokens) and of 256 (320 tokens), with pages given back on the way.
TEST_P(GoldenDecoding, StepsOfAtMost32RowsGiveTheSameBits) {
  Context context(2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto model = load_model(context, test::golden_path(GetParam()), dtype);
    const int64_t length = std::min<int64_t>(model->config().block_size, 320);
    const auto ids =
        test::random_integers(length, 1, static_cast<int32_t>(model->config().vocab_size));
    const auto one_by_one = logits_in_steps(context, *model, ids, 1);
    for (const int64_t step : {3, 8, 31, 32})
      EXPECT_EQ(logits_in_steps(context, *model, ids, step), one_by_one) << step;
    // Longer steps use other products: the same values up to rounding.
    const auto whole = logits_in_steps(context, *model, ids, length);
    if (dtype == DType::f32) {
      EXPECT_TRUE(test::max_close(whole, one_by_one, 1e-3));
    }
  }
}

TEST_P(GoldenDecoding, SequencesOfOneBatchDoNotSeeEachOther) {
  Context context(2);
  const auto model = load_model(context, test::golden_path(GetParam()), DType::f32);
  const auto a = test::random_integers(13, 2, static_cast<int32_t>(model->config().vocab_size));
  const auto b = test::random_integers(18, 3, static_cast<int32_t>(model->config().vocab_size));
  auto both = a;
  both.insert(both.end(), b.begin(), b.end());
  SequenceCache first(model->config(), DType::f32);
  SequenceCache second(model->config(), DType::f32);
  SequenceBatch batch;
  batch.append(13, first);
  batch.append(18, second);
  const Tensor together = model->forward(context, both, batch);
  SequenceCache alone(model->config(), DType::f32);
  SequenceBatch single;
  single.append(18, alone);
  const Tensor apart = model->forward(context, b, single);
  EXPECT_EQ(
      std::memcmp(together.data<float>() + 13 * model->config().dim, apart.raw(), apart.bytes()),
      0);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenDecoding,
                         ::testing::Values("dcformer-window", "dcformer-mgate", "dcformer-lgll",
                                           "training/gqa", "training/two-groups",
                                           "training/base-projection", "training/query-wise",
                                           "training/plain"),
                         [](const auto& info) { return test::test_name(info.param); });

// These models are badly conditioned: rounding the operands alone moves their logits by up to 40 %.
// So bf16 is held against a double-precision model that rounds at the same places: our error may be
// at most 1.5 times that one's.
TEST(GoldenBf16, ErrorIsThatOfRoundingAtTheStatedPlaces) {
  Context context(2);
  for (const auto& name :
       {"dcformer-window", "dcformer-no-qk-norm", "dcformer-six-heads", "training/plain"}) {
    SCOPED_TRACE(name);
    const std::string folder = test::golden_path(name);
    const auto config = reference::read_model_config(folder + "/config.json");
    const auto parameters = test::read_tensors(folder + "/model.safetensors");
    const int64_t length = 16;
    const auto ids = test::random_integers(3 * length, 4, static_cast<int32_t>(config.vocab_size));
    const auto exact = reference::model_logits(config, parameters, ids, length);
    const auto rounded = reference::model_logits(config, parameters, ids, length, true);
    const auto model = load_model(context, folder, DType::bf16);
    const Tensor logits = row_logits(context, *model, {3, length, ids}, 0);
    const double own = test::relative_distance(test::to_doubles(logits.span<float>()), exact);
    const double reference_error = test::relative_distance(rounded, exact);
    EXPECT_GT(own, 1e-4) << "nothing was rounded";
    EXPECT_LE(own, 1.5 * reference_error);
  }
}

}  // namespace
}  // namespace dcformer
