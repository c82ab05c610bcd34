#include "dcformer/train/evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "dcformer/generate/generator.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/model/checkpoint.h"
#include "tests/io/expect_error.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/random_values.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kLength = 9;
constexpr int32_t kVocabulary = 61;

/// Rows of ids of a golden model, padded behind their lengths with ids that have no meaning.
class EvaluationTest : public ::testing::Test {
 protected:
  EvaluationTest() : model_(load_model(context_, test::golden_path("training/plain"), DType::f32)) {
    ids_ = test::random_integers(kRows * kLength, 3, kVocabulary);
    lengths_ = {9, 2, 7, 9, 5};
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t i = lengths_[static_cast<size_t>(r)]; i < kLength; ++i)
        ids_[static_cast<size_t>(r * kLength + i)] = -1000 - static_cast<int32_t>(i);
  }

  RowSet rows(const std::vector<int32_t>& lengths) {
    const auto tensor = [&](const std::vector<int32_t>& values, const Shape& shape) {
      const Tensor t = Tensor::empty(context_, DType::i32, shape);
      std::copy(values.begin(), values.end(), t.data<int32_t>());
      return t;
    };
    const auto n = static_cast<int64_t>(lengths.size());
    write_safetensors(folder_ / "rows.safetensors", {{"rows", tensor(ids_, {kRows, kLength})},
                                                     {"lengths", tensor(lengths, {n})}});
    return RowSet::read(folder_ / "rows.safetensors");
  }

  Context context_{2};
  test::TemporaryFolder folder_;
  std::unique_ptr<LanguageModel> model_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> lengths_;
};

TEST_F(EvaluationTest, CountsEachPredictionOfTheLengthsOnce) {
  const RowSet set = rows(lengths_);
  // By hand: the logits of each row alone; id i+1 is predicted from position i.
  double loss = 0;
  int64_t n_correct = 0;
  int64_t n = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    const int64_t length = lengths_[static_cast<size_t>(r)];
    IdRows row{1, length, {}};
    row.ids.assign(ids_.begin() + r * kLength, ids_.begin() + r * kLength + length);
    const auto logits = test::to_doubles(row_logits(context_, *model_, row, 0).span<float>());
    for (int64_t i = 0; i + 1 < length; ++i, ++n) {
      const auto begin = logits.begin() + i * kVocabulary;
      const int32_t target = row.ids[static_cast<size_t>(i + 1)];
      double sum = 0;
      for (auto x = begin; x < begin + kVocabulary; ++x) sum += std::exp(*x);
      loss += std::log(sum) - begin[target];
      n_correct += std::max_element(begin, begin + kVocabulary) - begin == target;
    }
  }
  for (const int64_t batch_size : {1, 2, 5, 100}) {
    const auto e = evaluate(context_, *model_, set, batch_size, 0);
    ASSERT_TRUE(e.has_value());
    EXPECT_EQ(e->n_prediction, n);
    EXPECT_NEAR(e->loss, loss / static_cast<double>(n), 1e-5);
    EXPECT_NEAR(e->accuracy, static_cast<double>(n_correct) / static_cast<double>(n), 1e-12);
    EXPECT_NEAR(e->perplexity(), std::exp(e->loss), 1e-9);
    EXPECT_FALSE(e->bits_per_byte.has_value());
  }
  const auto e = evaluate(context_, *model_, set, 2, 10);
  EXPECT_NEAR(*e->bits_per_byte, loss / std::log(2.0) / 10, 1e-5);
}

TEST_F(EvaluationTest, EndsWhenInterrupted) {
  int n_asked = 0;
  const auto interrupted = [&] { return ++n_asked > 2; };
  EXPECT_FALSE(evaluate(context_, *model_, rows(lengths_), 1, 0, interrupted).has_value());
  EXPECT_EQ(n_asked, 3);
}

TEST_F(EvaluationTest, LengthsAreChecked) {
  test::expect_error([&] { rows({9, 2, 7, 9}); }, {"'lengths' has 4 values", "5 rows"});
  test::expect_error([&] { rows({9, 2, 1, 9, 5}); }, {"row 2 has length 1, expected 2 to 9"});
  test::expect_error([&] { rows({9, 2, 7, 10, 5}); }, {"row 3 has length 10"});
  EXPECT_NE(rows(lengths_).hash(), rows({9, 2, 7, 9, 4}).hash());
  EXPECT_EQ(rows(lengths_).hash(), rows(lengths_).hash());
  const std::string before = rows(lengths_).hash();
  ids_[0] += 1;
  EXPECT_NE(rows(lengths_).hash(), before);
}

}  // namespace
}  // namespace dcformer
