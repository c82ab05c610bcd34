// The oracles of the small operations: values by hand, gradients by differences.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/reference/adamw.h"
#include "tests/reference/cross_entropy.h"
#include "tests/reference/embedding.h"
#include "tests/reference/linear.h"
#include "tests/reference/mlp.h"
#include "tests/reference/rms_norm.h"
#include "tests/reference/rope.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_values.h"

namespace dcformer::reference {
namespace {

using test::all_close;
using test::dot;
using test::gradient_matches;
using test::random_doubles;
using Values = std::vector<double>;

TEST(ReferenceLinear, ByHand) {
  EXPECT_EQ(linear({1, 2, 3, 4}, {1, 0, 0, 1, 1, -1}, {}, 2), (Values{1, 2, -1, 3, 4, -1}));
  EXPECT_EQ(linear({1, 2}, {1, 0, 0, 1, 1, -1}, {10, 20, 30}, 2), (Values{11, 22, 29}));
}

TEST(ReferenceLinear, GradientsMatchDifferences) {
  const Values x = random_doubles(6, 1), weight = random_doubles(12, 2),
               bias = random_doubles(4, 3);
  const Values dy = random_doubles(8, 4);
  const LinearGradients g = linear_backward(x, weight, dy, 3);
  EXPECT_TRUE(gradient_matches(
      [&](const Values& at) { return dot(linear(at, weight, bias, 3), dy); }, x, g.x));
  EXPECT_TRUE(gradient_matches([&](const Values& at) { return dot(linear(x, at, bias, 3), dy); },
                               weight, g.weight));
  EXPECT_TRUE(gradient_matches([&](const Values& at) { return dot(linear(x, weight, at, 3), dy); },
                               bias, g.bias));
}

TEST(ReferenceRmsNorm, ByHand) {
  const Values y = rms_norm({3, 4, 0, 0}, {1, 2}, 0.5);
  EXPECT_TRUE(all_close(y, Values{3 / std::sqrt(13), 8 / std::sqrt(13), 0, 0}, 1e-15, 0));
}

TEST(ReferenceRmsNorm, GradientsMatchDifferences) {
  const Values x = random_doubles(12, 1, 3), scale = random_doubles(4, 2),
               dy = random_doubles(12, 3);
  const RmsNormGradients g = rms_norm_backward(x, scale, 0.01, dy);
  EXPECT_TRUE(gradient_matches([&](const Values& at) { return dot(rms_norm(at, scale, 0.01), dy); },
                               x, g.x));
  EXPECT_TRUE(gradient_matches([&](const Values& at) { return dot(rms_norm(x, at, 0.01), dy); },
                               scale, g.scale));
}

TEST(ReferenceRope, ByHand) {
  // D_rot 4 of 5: pairs (0,2) and (1,3), angles 3 and 3/100^(1/2).
  const Rope sizes{.n_head = 1, .head_dim = 5, .rotary_dim = 4, .base = 100};
  const Values y = rope({1, 2, 0, 0, 7}, {3}, sizes);
  EXPECT_TRUE(all_close(
      y, Values{std::cos(3), 2 * std::cos(0.3), std::sin(3), 2 * std::sin(0.3), 7}, 1e-14, 0));
}

TEST(ReferenceRope, ProductsDependOnTheDistance) {
  const Rope sizes{.n_head = 1, .head_dim = 6, .rotary_dim = 6, .base = 50};
  const Values q = random_doubles(6, 1), k = random_doubles(6, 2);
  EXPECT_NEAR(dot(rope(q, {9}, sizes), rope(k, {4}, sizes)),
              dot(rope(q, {105}, sizes), rope(k, {100}, sizes)), 1e-13);
}

TEST(ReferenceRope, GradientMatchesDifferences) {
  const Rope sizes{.n_head = 2, .head_dim = 6, .rotary_dim = 4, .base = 30};
  const Values x = random_doubles(36, 1), dy = random_doubles(36, 2);
  const std::vector<int64_t> positions{0, 5, 2};
  EXPECT_TRUE(
      gradient_matches([&](const Values& at) { return dot(rope(at, positions, sizes), dy); }, x,
                       rope_backward(dy, positions, sizes)));
}

TEST(ReferenceMlp, ByHand) {
  const double silu2 = 2 / (1 + std::exp(-2));
  EXPECT_TRUE(all_close(swiglu({2, 2, 0, 2}, {3, 5, 7, -1}, {}, 4),
                        Values{3 * silu2, 5 * silu2, 0, -silu2}, 1e-15, 0));
  EXPECT_TRUE(all_close(swiglu({2, 2, 2, 2}, {1, 1, 1, 1}, {3, 4}, 4),
                        Values{3 * silu2, 3 * silu2, 4 * silu2, 4 * silu2}, 1e-15, 0));
  EXPECT_TRUE(all_close(swiglu({2, 2, 2, 2}, {1, 1, 1, 1}, {3, 4, 5, 6}, 2),
                        Values{3 * silu2, 4 * silu2, 5 * silu2, 6 * silu2}, 1e-15, 0));
  EXPECT_TRUE(
      all_close(mgate({0, std::log(3.0), 1000, 1000}, 2), Values{0.25, 0.75, 0.5, 0.5}, 1e-15, 0));
}

TEST(ReferenceMlp, GradientsMatchDifferences) {
  const Values a = random_doubles(12, 1, 3), b = random_doubles(12, 2), gate = random_doubles(6, 3);
  const Values dy = random_doubles(12, 4);
  for (const Values& used : {gate, Values{}}) {
    const SwigluGradients g = swiglu_backward(a, b, used, 6, dy);
    EXPECT_TRUE(gradient_matches([&](const Values& at) { return dot(swiglu(at, b, used, 6), dy); },
                                 a, g.a));
    EXPECT_TRUE(gradient_matches([&](const Values& at) { return dot(swiglu(a, at, used, 6), dy); },
                                 b, g.b));
    if (used.empty()) continue;
    EXPECT_TRUE(gradient_matches([&](const Values& at) { return dot(swiglu(a, b, at, 6), dy); },
                                 gate, g.gate));
  }
  EXPECT_TRUE(gradient_matches([&](const Values& at) { return dot(mgate(at, 4), dy); }, a,
                               mgate_backward(a, 4, dy)));
}

TEST(ReferenceEmbedding, GathersAndScatters) {
  EXPECT_EQ(embedding({2, 0, 2}, {1, 2, 3, 4, 5, 6}, 2), (Values{5, 6, 1, 2, 5, 6}));
  EXPECT_EQ(embedding_backward({2, 0, 2}, 6, 2, {1, 2, 3, 4, 5, 6}), (Values{3, 4, 0, 0, 6, 8}));
  EXPECT_THROW(embedding({3}, {1, 2, 3, 4, 5, 6}, 2), std::out_of_range);
}

TEST(ReferenceCrossEntropy, ByHand) {
  const Values logits{std::log(1.0), std::log(3.0), 1000, 1000, 5, 6};
  const CrossEntropy result = cross_entropy(logits, {1, 0, -1});
  EXPECT_EQ(result.n_target, 2);
  // The second row loses digits to the size of its logits.
  EXPECT_NEAR(result.sum, std::log(4.0 / 3) + std::log(2.0), 1e-12);
  EXPECT_NEAR(result.mean(), result.sum / 2, 1e-15);
  EXPECT_EQ(cross_entropy(logits, {-1, -1, -1}).mean(), 0);
}

TEST(ReferenceCrossEntropy, GradientMatchesDifferences) {
  const Values logits = random_doubles(15, 1, 3);
  const std::vector<int32_t> targets{4, -1, 0};
  EXPECT_TRUE(gradient_matches([&](const Values& at) { return cross_entropy(at, targets).mean(); },
                               logits, cross_entropy_backward(logits, targets, 0.5)));
}

TEST(ReferenceAdamW, FirstUpdatesByHand) {
  AdamWState state{{2.0}, {0.0}, {0.0}};
  const AdamW recipe{.beta1 = 0.5, .beta2 = 0.75, .eps = 0.5, .weight_decay = 0.25};
  // Corrected moments after one update are the gradient and its square, whatever the betas.
  adamw(state, {4.0}, 1, 0.1, recipe, true);
  const double first = 2 - 0.1 * (4 / 4.5 + 0.25 * 2);
  EXPECT_NEAR(state.parameter[0], first, 1e-15);
  // m = 0.5·2 + 0.5·(-2) = 0; v = 0.75·4 + 0.25·4 = 4.
  adamw(state, {-2.0}, 2, 0.1, recipe, false);
  EXPECT_NEAR(state.parameter[0], first, 1e-15);
  EXPECT_NEAR(state.second_moment[0], 4, 1e-15);
  // m = 0.5·0 + 0.5·1, corrected by 1 - 1/8; v = 0.75·4 + 0.25·1, corrected by 1 - 27/64.
  adamw(state, {1.0}, 3, 0.1, recipe, false);
  const double step = 0.5 / 0.875 / (std::sqrt(3.25 / (37.0 / 64)) + 0.5);
  EXPECT_NEAR(state.parameter[0], first - 0.1 * step, 1e-15);
}

TEST(ReferenceAdamW, ScheduleWarmsUpAndDecays) {
  // The rates of the golden five-step runs, computed elsewhere.
  const Values expected{0.005, 0.01, 0.01, 0.009931634888554936, 0.009728616793536588};
  for (int64_t s = 0; s < 5; ++s)
    EXPECT_NEAR(learning_rate(s, 0.01, 2, 20, 0.1), expected[s], 1e-16);
  EXPECT_NEAR(learning_rate(11, 0.01, 2, 20, 0.1), 0.0055, 1e-16);
  EXPECT_NEAR(learning_rate(20, 0.01, 2, 20, 0.1), 0.001, 1e-16);
  EXPECT_NEAR(learning_rate(99, 0.01, 2, 20, 0.1), 0.001, 1e-16);
}

TEST(ReferenceAdamW, ClipsTheNorm) {
  EXPECT_EQ(clip_factor(4, 1), 0.25);
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
}

}  // namespace
}  // namespace dcformer::reference
