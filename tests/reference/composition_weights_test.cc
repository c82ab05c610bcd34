#include "tests/reference/composition_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/reference/bfloat16.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_values.h"

namespace dcformer::reference {
namespace {

using test::all_close;
using test::random_doubles;
using Values = std::vector<double>;

CompositionProblem problem_of(int64_t n_token, int64_t width, int64_t n_group, int64_t group_heads,
                              int64_t rank) {
  CompositionProblem p;
  p.n_token = n_token;
  p.width = width;
  p.n_group = n_group;
  p.group_heads = group_heads;
  p.rank = rank;
  p.x = random_doubles(n_token * width, 1, 1.5);
  p.dw1 = random_doubles(width * n_group * 4 * p.hidden(), 2);
  p.qkw = random_doubles(n_group * 4 * p.hidden() * 2 * rank * group_heads, 3, 0.5);
  p.dd = random_doubles(width * n_group * 4 * group_heads, 4, 0.5);
  return p;
}

void expect_gradients_match(const CompositionProblem& problem) {
  const Values dweights =
      random_doubles(problem.n_token * problem.n_group * 4 * problem.block(), 9);
  const CompositionGradients gradients = composition_weights_backward(problem, dweights);
  const auto expect_matches = [&](Values CompositionProblem::*argument, const Values& gradient,
                                  const char* name) {
    const auto function = [&](const Values& x) {
      CompositionProblem moved = problem;
      moved.*argument = x;
      return test::dot(composition_weights(moved), dweights);
    };
    EXPECT_TRUE(test::gradient_matches(function, problem.*argument, gradient, {.step = 2e-4}))
        << name;
  };
  expect_matches(&CompositionProblem::x, gradients.x, "x");
  expect_matches(&CompositionProblem::dw1, gradients.dw1, "dw1");
  expect_matches(&CompositionProblem::qkw, gradients.qkw, "qkw");
  expect_matches(&CompositionProblem::dd, gradients.dd, "dd");
}

TEST(ReferenceCompositionWeights, GradientsMatchDifferences) {
  expect_gradients_match(problem_of(2, 5, 1, 3, 2));
  expect_gradients_match(problem_of(3, 4, 2, 2, 1));
  expect_gradients_match(problem_of(1, 3, 3, 1, 2));
}

TEST(ReferenceCompositionWeights, GradientsMatchWithTanhAndWithoutGates) {
  CompositionProblem problem = problem_of(2, 5, 1, 3, 2);
  problem.gelu = Gelu::tanh;
  expect_gradients_match(problem);
  problem.gates = false;
  expect_gradients_match(problem);
}

// One token of width 1, two heads, rank 1: K = 4.
TEST(ReferenceCompositionWeights, ByHand) {
  CompositionProblem p = problem_of(1, 1, 1, 2, 1);
  p.x = {2};
  p.dw1.assign(16, 0);
  p.qkw.assign(4 * 4 * 2 * 2, 0);
  p.dd = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8};
  // Block (post, query), cs = 2: hidden unit 3 alone is alive.
  p.dw1[2 * 4 + 3] = 0.5;
  const int64_t row = (2 * 4 + 3) * 4;
  p.qkw[row] = 3;       // w1, head 0
  p.qkw[row + 1] = -4;  // w1, head 1
  p.qkw[row + 2] = 5;   // w2, head 0
  p.qkw[row + 3] = 6;   // w2, head 1
  const Values weights = composition_weights(p);
  const double u = gelu(1, Gelu::erf);
  const double rms = std::sqrt(12.5 * u * u + 1e-6);
  Values expected(4 * 6);
  for (int cs = 0; cs < 4; ++cs)
    for (int m = 0; m < 2; ++m) expected[cs * 6 + 4 + m] = std::tanh(2 * p.dd[cs * 2 + m]);
  expected[2 * 6 + 0] = 3 * u / rms;
  expected[2 * 6 + 1] = -4 * u / rms;
  expected[2 * 6 + 2] = 5 * u;
  expected[2 * 6 + 3] = 6 * u;
  EXPECT_TRUE(all_close(weights, expected, 1e-14, 0));
  EXPECT_EQ(composition_side(p, weights, 0), Values([&] {
              Values side(expected.size() / 2);
              for (int x = 0; x < 6; ++x) {
                side[x] = weights[x];
                side[6 + x] = weights[12 + x];
              }
              return side;
            }()));
}

TEST(ReferenceCompositionWeights, SidesTakeTurns) {
  const CompositionProblem p = problem_of(2, 3, 2, 1, 1);
  Values weights(2 * 2 * 4 * 3);
  for (size_t x = 0; x < weights.size(); ++x) weights[x] = static_cast<double>(x);
  const Values query = composition_side(p, weights, 0), key = composition_side(p, weights, 1);
  EXPECT_EQ(Values(query.begin(), query.begin() + 7), (Values{0, 1, 2, 6, 7, 8, 12}));
  EXPECT_EQ(Values(key.begin(), key.begin() + 7), (Values{3, 4, 5, 9, 10, 11, 15}));
}

TEST(ReferenceCompositionWeights, RoundsOperandsAndKeySide) {
  CompositionProblem p = problem_of(2, 5, 1, 3, 2);
  p.round_to_bf16 = true;
  const Values rounded = composition_weights(p);
  EXPECT_FALSE(to_bfloat16(composition_side(p, rounded, 0)) == composition_side(p, rounded, 0));
  EXPECT_EQ(to_bfloat16(composition_side(p, rounded, 1)), composition_side(p, rounded, 1));
  CompositionProblem operands = p;
  for (Values* operand : {&operands.x, &operands.dw1, &operands.qkw, &operands.dd})
    *operand = to_bfloat16(*operand);
  EXPECT_EQ(composition_weights(operands), rounded);
  // Rounding u still sets it apart from exact arithmetic on the same operands.
  operands.round_to_bf16 = false;
  EXPECT_FALSE(all_close(composition_side(p, composition_weights(operands), 0),
                         composition_side(p, rounded, 0), 1e-6, 0));
  EXPECT_TRUE(test::norm_close(rounded, composition_weights(operands), 0.02));
}

}  // namespace
}  // namespace dcformer::reference
