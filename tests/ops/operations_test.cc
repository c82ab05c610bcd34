#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <tuple>

#include "dcformer/ops/adamw.h"
#include "dcformer/ops/add.h"
#include "dcformer/ops/convert.h"
#include "dcformer/ops/cross_entropy.h"
#include "dcformer/ops/embedding.h"
#include "dcformer/ops/gelu.h"
#include "dcformer/ops/mgate.h"
#include "dcformer/ops/rms_norm.h"
#include "dcformer/ops/rope.h"
#include "dcformer/ops/swiglu.h"
#include "dcformer/tensor/tensor.h"
#include "tests/reference/adamw.h"
#include "tests/reference/bfloat16.h"
#include "tests/reference/cross_entropy.h"
#include "tests/reference/embedding.h"
#include "tests/reference/gelu.h"
#include "tests/reference/linear.h"
#include "tests/reference/mlp.h"
#include "tests/reference/rms_norm.h"
#include "tests/reference/rope.h"
#include "tests/support/compare.h"
#include "tests/support/random_values.h"

namespace dcformer {
namespace {

using test::all_close;
using test::norm_close;
using test::random_floats;
using test::to_doubles;

// Element-wise f32 arithmetic of a few steps, with sums over at most some hundred terms.
constexpr double kTight = 2e-6;

MatrixView<float> matrix(std::vector<float>& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}
MatrixView<const float> matrix(const std::vector<float>& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}

class Widths : public ::testing::TestWithParam<int64_t> {
 protected:
  Context context{2};
};
INSTANTIATE_TEST_SUITE_P(Operations, Widths,
                         ::testing::Values(1, 7, 8, 9, 15, 16, 17, 31, 64, 131));

TEST_P(Widths, RmsNorm) {
  const int64_t n = GetParam();
  const int64_t rows = 19;
  const auto x = random_floats(rows * n, 1, 2);
  const auto scale = random_floats(n, 2);
  const auto dy = random_floats(rows * n, 3);
  std::vector<float> y(x.size());
  rms_norm(context, matrix(x, n), scale.data(), 1e-5f, matrix(y, n));
  EXPECT_TRUE(norm_close(y, reference::rms_norm(to_doubles(x), to_doubles(scale), 1e-5), kTight));
  const auto expected =
      reference::rms_norm_backward(to_doubles(x), to_doubles(scale), 1e-5, to_doubles(dy));
  std::vector<float> dx(x.size(), 1);
  std::vector<float> dscale(scale.size(), 2);
  rms_norm_backward(context, matrix(x, n), scale.data(), 1e-5f, matrix(dy, n), matrix(dx, n), true,
                    dscale.data());
  auto dx_expected = expected.x;
  auto dscale_expected = expected.scale;
  for (double& d : dx_expected) d += 1;
  for (double& d : dscale_expected) d += 2;
  EXPECT_TRUE(all_close(dx, dx_expected, 1e-5, 1e-5));
  EXPECT_TRUE(all_close(dscale, dscale_expected, 1e-5, 1e-5));
}

TEST_P(Widths, RmsNormOfHeadsIsThatOfRows) {
  const int64_t d = GetParam();
  const int64_t heads = 3;
  const int64_t tokens = 5;
  const auto x = random_floats(tokens * heads * d, 4);
  const auto scale = random_floats(d, 5);
  const HeadView<const float> view{x.data(), tokens, heads, d, heads * d, d};
  std::vector<float> y(x.size());
  rms_norm_heads(context, view, scale.data(), 1e-6f, {y.data(), tokens, heads, d, heads * d, d});
  EXPECT_TRUE(norm_close(y, reference::rms_norm(to_doubles(x), to_doubles(scale), 1e-6), kTight));
  auto dx = random_floats(tokens * heads * d, 6);
  const auto expected =
      reference::rms_norm_backward(to_doubles(x), to_doubles(scale), 1e-6, to_doubles(dx));
  std::vector<float> dscale(scale.size());
  const HeadView<float> gradient{dx.data(), tokens, heads, d, heads * d, d};
  rms_norm_heads_backward(context, view, scale.data(), 1e-6f, gradient, gradient, dscale.data());
  EXPECT_TRUE(all_close(dx, expected.x, 1e-4, 1e-5));
  EXPECT_TRUE(all_close(dscale, expected.scale, 1e-5, 1e-5));
}

TEST_P(Widths, SwigluWithAndWithoutGate) {
  const int64_t n = GetParam() * 3;
  const auto a = random_floats(4 * n, 7, 6);
  const auto b = random_floats(4 * n, 8);
  const auto dy = random_floats(4 * n, 9);
  for (const bool gated : {false, true}) {
    const auto gate = gated ? random_floats(4 * 3, 10) : std::vector<float>();
    const MatrixView<const float> g = gated ? matrix(gate, 3) : MatrixView<const float>();
    std::vector<float> y(a.size());
    swiglu(context, matrix(a, n), matrix(b, n), g, matrix(y, n));
    EXPECT_TRUE(norm_close(y, reference::swiglu(to_doubles(a), to_doubles(b), to_doubles(gate), n),
                           kTight));
    std::vector<float> da(a.size()), db(a.size()), dgate(gate.size());
    swiglu_backward(context, matrix(a, n), matrix(b, n), g, matrix(dy, n), matrix(da, n),
                    matrix(db, n), gated ? matrix(dgate, 3) : MatrixView<float>());
    const auto e = reference::swiglu_backward(to_doubles(a), to_doubles(b), to_doubles(gate), n,
                                              to_doubles(dy));
    EXPECT_TRUE(norm_close(da, e.a, kTight));
    EXPECT_TRUE(norm_close(db, e.b, kTight));
    if (gated) {
      EXPECT_TRUE(norm_close(dgate, e.gate, 1e-5));
    }
  }
}

TEST_P(Widths, Mgate) {
  const int64_t n = GetParam();
  const auto x = random_floats(6 * n, 11, 8);
  const auto dp = random_floats(6 * n, 12);
  std::vector<float> p(x.size()), dx(x.size());
  mgate(context, matrix(x, n), matrix(p, n));
  EXPECT_TRUE(norm_close(p, reference::mgate(to_doubles(x), n), kTight));
  mgate_backward(context, matrix(std::as_const(p), n), matrix(dp, n), matrix(dx, n));
  EXPECT_TRUE(
      all_close(dx, reference::mgate_backward(to_doubles(x), n, to_doubles(dp)), 1e-5, 1e-6));
}

TEST_P(Widths, AddAndConvert) {
  const int64_t n = GetParam();
  const auto a = random_floats(3 * n, 13);
  const auto b = random_floats(3 * n, 14);
  std::vector<float> y(a.size());
  add(context, matrix(a, n), matrix(b, n), matrix(y, n));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], a[i] + b[i]);
  const Tensor rounded = Tensor::empty(context, DType::bf16, {3, n});
  convert(context, matrix(a, n), rounded.matrix());
  const Tensor back = Tensor::empty(context, DType::f32, {3, n});
  convert(context, rounded.matrix(), back.matrix());
  EXPECT_TRUE(test::same_values(back.span<float>(), reference::to_bfloat16(to_doubles(a))));
}

TEST(Operations, ConvertKeepsNanAndInfinity) {
  Context context(1);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x(19, 1.0f);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  x[1] = kInfinity;
  x[2] = -kInfinity;
  x[18] =
      std::bit_cast<float>(0x7f800001u);     // a NaN whose bits all lie in the half that is dropped
  x[3] = std::numeric_limits<float>::max();  // rounds up to infinity
  const Tensor rounded = Tensor::empty(context, DType::bf16, {1, 19});
  convert(context, matrix(std::as_const(x), 19), rounded.matrix());
  const auto y = rounded.span<BFloat16>();
  EXPECT_TRUE(std::isnan(static_cast<float>(y[0])));
  EXPECT_TRUE(std::isnan(static_cast<float>(y[18])));
  EXPECT_EQ(static_cast<float>(y[1]), kInfinity);
  EXPECT_EQ(static_cast<float>(y[2]), -kInfinity);
  EXPECT_EQ(static_cast<float>(y[3]), kInfinity);
}

TEST(Operations, GeluOfBothKindsOverItsWholeRange) {
  Context context(2);
  std::vector<float> x;
  for (int i = -1400; i <= 1400; ++i) x.push_back(static_cast<float>(i) * 0.01f);
  const std::vector<float> dy(x.size(), 1.0f);
  for (const auto& [kind, oracle] :
       {std::pair(GeluKind::erf, reference::Gelu::erf), {GeluKind::tanh, reference::Gelu::tanh}}) {
    std::vector<float> y(x.size()), dx(x.size());
    const auto n = static_cast<int64_t>(x.size());
    gelu(context, matrix(std::as_const(x), n), kind, matrix(y, n));
    gelu_backward(context, matrix(std::as_const(x), n), kind, matrix(dy, n), matrix(dx, n));
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], reference::gelu(x[i], oracle), 4e-7 * (1 + std::abs(x[i]))) << x[i];
      EXPECT_NEAR(dx[i], reference::gelu_derivative(x[i], oracle), 2e-6) << x[i];
    }
  }
}

TEST(Operations, GeluKeepsNanAndLimits) {
  Context context(1);
  const std::vector<float> x = {std::numeric_limits<float>::quiet_NaN(), 1e30f, -1e30f};
  std::vector<float> y(3);
  for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
    gelu(context, matrix(x, 3), kind, matrix(y, 3));
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], 1e30f);
    EXPECT_EQ(y[2], 0.0f);
  }
}

TEST(Operations, RopeForwardInverseAndPartialWidth) {
  Context context(2);
  for (const auto& [heads, d, rotary] :
       {std::tuple<int64_t, int64_t, int64_t>(2, 8, 8), {3, 20, 6}, {1, 64, 64}, {2, 5, 0}}) {
    const int64_t tokens = 6;
    const std::vector<int64_t> positions = {0, 1, 2, 63, 7, 40};
    const RopeTable table(64, rotary, 10000);
    const auto x = random_floats(tokens * heads * d, 15);
    const HeadView<const float> view{x.data(), tokens, heads, d, heads * d, d};
    const reference::Rope sizes{heads, d, rotary, 10000};
    std::vector<float> y(x.size());
    const HeadView<float> out{y.data(), tokens, heads, d, heads * d, d};
    rope(context, view, positions, table, RopeDirection::forward, out);
    EXPECT_TRUE(norm_close(y, reference::rope(to_doubles(x), positions, sizes), kTight));
    rope(context, view, positions, table, RopeDirection::inverse, out);
    EXPECT_TRUE(norm_close(y, reference::rope_backward(to_doubles(x), positions, sizes), kTight));
  }
  EXPECT_THROW(RopeTable(8, 3, 10000), Error);
}

TEST(Operations, EmbeddingAndItsGradient) {
  Context context(2);
  const std::vector<int32_t> ids = {3, 0, 3, 6, 3, 1};
  const auto table = random_floats(7 * 70, 16);
  const auto dy = random_floats(6 * 70, 17);
  std::vector<float> y(dy.size()), dtable(table.size());
  embedding(context, ids, matrix(table, 70), matrix(y, 70));
  EXPECT_TRUE(test::same_values(y, reference::embedding(ids, to_doubles(table), 70)));
  embedding_backward(context, ids, matrix(dy, 70), matrix(dtable, 70));
  EXPECT_TRUE(all_close(dtable, reference::embedding_backward(ids, 7 * 70, 70, to_doubles(dy)),
                        1e-6, 1e-7));
  for (const int32_t bad : {-1, 7})
    EXPECT_THROW(embedding(context, std::vector<int32_t>{0, 1, 2, 3, 4, bad}, matrix(table, 70),
                           matrix(y, 70)),
                 Error);
}

TEST(Operations, LinearCrossEntropyInChunksWithIgnoredTargets) {
  Context context(2);
  // More tokens than one chunk holds (2048 of this vocabulary).
  const int64_t n = 2100;
  const int64_t width = 9;
  const int64_t vocabulary = 37;
  const auto x = random_floats(n * width, 18);
  const auto w = random_floats(vocabulary * width, 19, 2);
  std::vector<int32_t> targets = test::random_integers(n, 20, static_cast<int32_t>(vocabulary));
  targets[0] = targets[5] = targets[2099] = -1;
  const Weight weight{matrix(w, width), WeightLayout::out_in, nullptr};
  std::vector<float> dx(x.size(), 5), dw(w.size(), 1);
  const CrossEntropyGradients gradients{0.25f, matrix(dx, width), matrix(dw, width)};
  const CrossEntropySum sum =
      linear_cross_entropy(context, matrix(x, width), weight, targets, &gradients);
  const auto logits = reference::linear(to_doubles(x), to_doubles(w), {}, static_cast<int>(width));
  const auto expected = reference::cross_entropy(logits, targets);
  EXPECT_EQ(sum.n_target, 2097);
  EXPECT_NEAR(sum.loss, expected.sum, 1e-6 * expected.sum);
  const auto dlogits = reference::cross_entropy_backward(logits, targets, 0.25);
  auto e =
      reference::linear_backward(to_doubles(x), to_doubles(w), dlogits, static_cast<int>(width));
  for (double& d : e.weight) d += 1;
  EXPECT_TRUE(all_close(dx, e.x, 1e-5, 1e-6));
  EXPECT_TRUE(all_close(dw, e.weight, 1e-5, 1e-4));
  const CrossEntropySum alone =
      linear_cross_entropy(context, matrix(x, width), weight, targets, nullptr);
  EXPECT_EQ(alone.loss, sum.loss);
  int64_t n_correct = 0;
  for (int64_t r = 0; r < n; ++r) {
    const auto row = logits.begin() + r * vocabulary;
    n_correct += std::max_element(row, row + vocabulary) - row == targets[static_cast<size_t>(r)];
  }
  EXPECT_GT(n_correct, 0);
  EXPECT_EQ(sum.n_correct, n_correct);
  EXPECT_EQ(alone.n_correct, n_correct);
  targets[3] = static_cast<int32_t>(vocabulary);
  EXPECT_THROW(linear_cross_entropy(context, matrix(x, width), weight, targets, nullptr), Error);
}

TEST(Operations, CrossEntropyOfHugeLogits) {
  Context context(1);
  const std::vector<float> x = {1};
  const std::vector<float> w = {1e4f, -1e4f, 0};
  const Weight weight{matrix(w, 1), WeightLayout::out_in, nullptr};
  EXPECT_EQ(
      linear_cross_entropy(context, matrix(x, 1), weight, std::vector<int32_t>{0}, nullptr).loss,
      0);
  EXPECT_EQ(
      linear_cross_entropy(context, matrix(x, 1), weight, std::vector<int32_t>{1}, nullptr).loss,
      2e4);
}

TEST(Operations, LogitsThatAreNoNumbersPredictNothing) {
  Context context(1);
  const std::vector<float> x = {1};
  const std::vector<float> w = {NAN, NAN, NAN};
  const Weight weight{matrix(w, 1), WeightLayout::out_in, nullptr};
  EXPECT_EQ(linear_cross_entropy(context, matrix(x, 1), weight, std::vector<int32_t>{1}, nullptr)
                .n_correct,
            0);
}

TEST(Operations, OfEqualLogitsTheFirstIsTheLargest) {
  Context context(1);
  const std::vector<float> x = {1, 1, 1, 1};
  const std::vector<float> w = {0, 2, 2, 1};
  const Weight weight{matrix(w, 1), WeightLayout::out_in, nullptr};
  const auto n_correct = [&](int32_t target) {
    return linear_cross_entropy(context, matrix(x, 1), weight,
                                std::vector<int32_t>{target, -1, -1, target}, nullptr)
        .n_correct;
  };
  EXPECT_EQ(n_correct(0), 0);
  EXPECT_EQ(n_correct(1), 2);
  EXPECT_EQ(n_correct(2), 0);
  EXPECT_EQ(n_correct(3), 0);
}

TEST(Operations, AdamWOverSeveralSteps) {
  Context context(2);
  const int64_t n = 70001;
  auto w = random_floats(n, 21);
  std::vector<float> m(w.size()), v(w.size());
  reference::AdamWState state{to_doubles(w), std::vector<double>(w.size()),
                              std::vector<double>(w.size())};
  const reference::AdamW recipe{0.9, 0.95, 1e-8, 0.1};
  for (int64_t step = 1; step <= 4; ++step) {
    const auto g = random_floats(n, static_cast<uint64_t>(100 + step));
    auto scaled = to_doubles(g);
    for (double& x : scaled) x *= 0.5;
    adamw(context, w, g, m, v, {1e-3, 0.9, 0.95, 1e-8, 0.1, step, 0.5});
    reference::adamw(state, scaled, step, 1e-3, recipe, true);
  }
  EXPECT_TRUE(all_close(w, state.parameter, 1e-6, 1e-7));
  EXPECT_TRUE(norm_close(m, state.first_moment, 1e-6));
  EXPECT_TRUE(norm_close(v, state.second_moment, 1e-6));
  double squares = 0;
  for (const float x : w) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(sum_of_squares(context, w), squares, 1e-6 * squares);
}

}  // namespace
}  // namespace dcformer
