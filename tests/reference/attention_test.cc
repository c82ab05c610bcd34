#include "tests/reference/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_values.h"

namespace dcformer::reference {
namespace {

using test::all_close;
using test::random_doubles;
using Values = std::vector<double>;

// A problem with everything on; tests change what they are about, then fill().
AttentionProblem problem_of(int64_t n_query, int64_t n_key) {
  AttentionProblem p;
  p.n_query = n_query;
  p.n_key = n_key;
  p.n_head = 4;
  p.n_kv_head = 4;
  p.head_dim = 3;
  p.base_projection = true;
  return p;
}

void fill(AttentionProblem& p) {
  p.q = random_doubles(p.n_query * p.n_head * p.head_dim, 1, 2);
  p.k = random_doubles(p.n_key * p.n_kv_head * p.head_dim, 2, 2);
  p.v = random_doubles(p.n_key * p.n_kv_head * p.head_dim, 3);
  p.query_weights = random_doubles(p.n_query * p.n_group * 2 * p.block(), 4);
  p.key_weights = random_doubles(p.n_key * p.n_group * 2 * p.block(), 5);
  const int64_t base_size = p.n_group * p.group_heads() * p.group_heads();
  p.base_pre = random_doubles(base_size, 6);
  p.base_post = random_doubles(base_size, 7);
}

struct Variant {
  std::string name;
  AttentionProblem problem;
};

std::vector<Variant> variants() {
  std::vector<Variant> list;
  const auto add = [&](const std::string& name, auto&& change) {
    AttentionProblem p = problem_of(5, 5);
    change(p);
    fill(p);
    list.push_back({name, p});
  };
  add("Full", [](auto&) {});
  add("NoPre", [](auto& p) { p.pre = false; });
  add("NoPost", [](auto& p) { p.post = false; });
  add("NoQuerySide", [](auto& p) { p.query_side = false; });
  add("NoKeySide", [](auto& p) { p.key_side = false; });
  add("NoGates", [](auto& p) { p.gates = false; });
  add("NoDynamic", [](auto& p) { p.dynamic = false; });
  add("NoBase", [](auto& p) { p.base_projection = false; });
  add("Plain", [](auto& p) { p.pre = p.post = false; });
  add("RankOne", [](auto& p) { p.rank = 1; });
  add("TwoGroups", [](auto& p) { p.n_group = 2; });
  add("GroupsOfOne", [](auto& p) { p.n_group = 4; });
  add("SharedKeys", [](auto& p) { p.n_kv_head = 2; });
  add("OneKeyHead", [](auto& p) { p.n_kv_head = 1; });
  add("Window", [](auto& p) { p.window = 2; });
  add("Bidirectional", [](auto& p) { p.causal = false; });
  add("Cross", [](auto& p) {
    p.causal = false;
    p.n_key = 7;
  });
  add("Continued", [](auto& p) { p.n_query = 2; });
  add("StartPastTheEnd", [](auto& p) { p.start = 4; });
  add("KeyLength", [](auto& p) {
    p.causal = false;
    p.key_length = 3;
  });
  add("Segments", [](auto& p) {
    p.query_segments = {0, 0, 1, 1, 2};
    p.key_segments = {0, 0, 1, 1, 1};
  });
  add("OneToken", [](auto& p) { p.n_query = p.n_key = 1; });
  return list;
}

class ReferenceAttention : public ::testing::TestWithParam<Variant> {};

TEST_P(ReferenceAttention, GradientsMatchDifferences) {
  const AttentionProblem& problem = GetParam().problem;
  const Values dout = random_doubles(static_cast<int64_t>(problem.q.size()), 9);
  const AttentionGradients gradients = attention_backward(problem, dout);
  const auto expect_matches = [&](Values AttentionProblem::*argument, const Values& gradient,
                                  const char* name) {
    const auto function = [&](const Values& x) {
      AttentionProblem moved = problem;
      moved.*argument = x;
      return test::dot(attention(moved).o, dout);
    };
    EXPECT_TRUE(test::gradient_matches(function, problem.*argument, gradient)) << name;
  };
  expect_matches(&AttentionProblem::q, gradients.q, "q");
  expect_matches(&AttentionProblem::k, gradients.k, "k");
  expect_matches(&AttentionProblem::v, gradients.v, "v");
  expect_matches(&AttentionProblem::query_weights, gradients.query_weights, "query_weights");
  expect_matches(&AttentionProblem::key_weights, gradients.key_weights, "key_weights");
  expect_matches(&AttentionProblem::base_pre, gradients.base_pre, "base_pre");
  expect_matches(&AttentionProblem::base_post, gradients.base_post, "base_post");
}

INSTANTIATE_TEST_SUITE_P(Variants, ReferenceAttention, ::testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param.name; });

// The published form of one side, as a matrix: w1ᵀ·w2 + diag(gate), applied from the left.
TEST(ReferenceAttentionFormula, OneRowByHand) {
  AttentionProblem p = problem_of(1, 2);
  p.n_head = p.n_kv_head = 2;
  p.head_dim = 1;
  p.rank = 1;
  p.causal = false;
  p.base_projection = false;
  p.key_side = false;
  p.post = false;
  p.q = {1, 2};
  p.k = {1, 1, 2, 3};
  p.v = {1, 10, 2, 20};
  // One row w1, one row w2, the gates; the stage after the softmax is off.
  p.query_weights = {0.5, -1, 2, 1, 0.25, -0.5, 9, 9, 9, 9, 9, 9};
  const AttentionResult result = attention(p);
  // Scores (1,2) and (2,6). inner = 0.5·a0 - a1: -1.5 and -5.
  // A'0 = a0·1.25 + 2·inner, A'1 = a1·0.5 + inner.
  const double a00 = 1.25 - 3, a01 = 2.5 - 10, a10 = 1 - 1.5, a11 = 3 - 5;
  const double p0 = 1 / (1 + std::exp(a01 - a00)), p1 = 1 / (1 + std::exp(a11 - a10));
  EXPECT_TRUE(
      all_close(result.o, Values{p0 * 1 + (1 - p0) * 2, p1 * 10 + (1 - p1) * 20}, 1e-14, 0));
  EXPECT_TRUE(all_close(result.maximum, Values{a00, a10}, 1e-14, 0));
  EXPECT_TRUE(all_close(result.sum, Values{1 / p0, 1 / p1}, 1e-14, 0));
}

TEST(ReferenceAttentionFormula, PostStageMixesProbabilities) {
  AttentionProblem p = problem_of(1, 1);
  p.n_head = p.n_kv_head = 2;
  p.head_dim = 1;
  p.rank = 1;
  p.pre = false;
  p.q = {1, 2};
  p.k = {1, 1};
  p.v = {1, 10};
  p.base_post = {0.5, 1, 2, 3};
  p.query_weights = {9, 9, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6};
  p.key_weights = {9, 9, 9, 9, 9, 9, 1, 1, 0.5, 0.25, 0, 1};
  // A single key has probability 1 in both heads.
  const double head0 = 1 + (0.5 + 2) + (3 * 3 + 5) + (2 * 0.5 + 0);
  const double head1 = 1 + (1 + 3) + (3 * 4 + 6) + (2 * 0.25 + 1);
  EXPECT_TRUE(all_close(attention(p).o, Values{head0, head1 * 10}, 1e-14, 0));
}

TEST(ReferenceAttentionFormula, GroupsReadTheirOwnHeads) {
  AttentionProblem p = problem_of(3, 3);
  p.n_group = 2;
  fill(p);
  const Values whole = attention(p).o;
  AttentionProblem half = p;
  half.n_head = half.n_kv_head = 2;
  half.n_group = 1;
  const auto second_half = [](const Values& values, int64_t block) {
    Values out;
    for (size_t i = block; i < values.size(); i += 2 * block)
      out.insert(out.end(), values.begin() + i, values.begin() + i + block);
    return out;
  };
  for (Values AttentionProblem::*field :
       {&AttentionProblem::q, &AttentionProblem::k, &AttentionProblem::v})
    half.*field = second_half(p.*field, 2 * p.head_dim);
  half.query_weights = second_half(p.query_weights, 2 * p.block());
  half.key_weights = second_half(p.key_weights, 2 * p.block());
  half.base_pre = second_half(p.base_pre, 4);
  half.base_post = second_half(p.base_post, 4);
  EXPECT_TRUE(all_close(attention(half).o, second_half(whole, 2 * p.head_dim), 1e-14, 0));
}

TEST(ReferenceAttentionFormula, NeighbouringHeadsShareKeys) {
  AttentionProblem shared = problem_of(3, 3);
  shared.n_kv_head = 2;
  fill(shared);
  AttentionProblem own = shared;
  own.n_kv_head = 4;
  for (Values AttentionProblem::*field : {&AttentionProblem::k, &AttentionProblem::v}) {
    Values& values = own.*field;
    values.clear();
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t head : {0, 0, 1, 1})
        for (int64_t d = 0; d < shared.head_dim; ++d)
          values.push_back((shared.*field)[(j * 2 + head) * shared.head_dim + d]);
  }
  EXPECT_TRUE(test::same_values(attention(shared).o, attention(own).o));
}

TEST(ReferenceAttentionMask, WindowKeepsExactlyItsKeys) {
  AttentionProblem p = problem_of(3, 9);
  p.window = 4;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 9; ++j)
      EXPECT_EQ(visible(p, i, j), j > 6 + i - 4 && j <= 6 + i) << i << ' ' << j;
  p.start = 2;
  int64_t seen = 0;
  for (int64_t j = 0; j < 9; ++j) seen += visible(p, 2, j) ? 1 : 0;
  EXPECT_EQ(seen, 4);
  EXPECT_TRUE(visible(p, 0, 0) && visible(p, 0, 2) && !visible(p, 0, 3));
}

TEST(ReferenceAttentionMask, SegmentsAndLengthsHide) {
  AttentionProblem p = problem_of(2, 4);
  p.causal = false;
  p.key_length = 3;
  p.query_segments = {0, 1};
  p.key_segments = {0, 1, 1, 1};
  const std::vector<std::vector<bool>> expected{{true, false, false, false},
                                                {false, true, true, false}};
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(visible(p, i, j), expected[i][j]) << i << ' ' << j;
}

TEST(ReferenceAttentionMask, UnseenKeysHaveNoEffect) {
  AttentionProblem p = problem_of(3, 5);
  p.start = 0;
  p.key_length = 3;
  fill(p);
  const Values clean = attention(p).o;
  const Values dout = random_doubles(static_cast<int64_t>(p.q.size()), 9);
  const AttentionGradients clean_gradients = attention_backward(p, dout);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (Values AttentionProblem::*field :
       {&AttentionProblem::k, &AttentionProblem::v, &AttentionProblem::key_weights}) {
    Values& values = p.*field;
    std::fill(values.begin() + values.size() / 5 * 3, values.end(), nan);
  }
  EXPECT_TRUE(test::same_values(attention(p).o, clean));
  const AttentionGradients gradients = attention_backward(p, dout);
  EXPECT_TRUE(test::same_values(gradients.q, clean_gradients.q));
  EXPECT_TRUE(test::same_values(gradients.k, clean_gradients.k));
  EXPECT_TRUE(test::same_values(gradients.key_weights, clean_gradients.key_weights));
}

TEST(ReferenceAttentionMask, RowWithoutKeysIsZero) {
  AttentionProblem p = problem_of(2, 3);
  p.start = -1;
  fill(p);
  const AttentionResult result = attention(p);
  const AttentionGradients gradients = attention_backward(p, Values(p.q.size(), 1));
  for (int64_t x = 0; x < p.n_head * p.head_dim; ++x) {
    EXPECT_EQ(result.o[x], 0);
    EXPECT_EQ(gradients.q[x], 0);
    EXPECT_EQ(result.maximum[x / p.head_dim], 0);
    EXPECT_EQ(result.sum[x / p.head_dim], 0);
    EXPECT_NE(result.o[p.n_head * p.head_dim + x], 0);
  }
}

TEST(ReferenceAttentionRounding, RoundsTheWeightsOfV) {
  AttentionProblem p = problem_of(1, 3);
  p.n_head = p.n_kv_head = 1;
  p.head_dim = 1;
  p.pre = p.post = p.dynamic = p.base_projection = false;
  p.q = {0};
  p.k = {0, 0, 0};
  p.v = {1, 2, 4};
  EXPECT_TRUE(all_close(attention(p).o, Values{7.0 / 3}, 1e-15, 0));
  p.round_to_bf16 = true;
  // 1/3 is 0x1.5555…p-2; bf16 keeps 0x1.56p-2.
  EXPECT_EQ(attention(p).o[0], 7 * 0x1.56p-2);
}

}  // namespace
}  // namespace dcformer::reference
