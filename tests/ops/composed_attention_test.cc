#include "dcformer/ops/composed_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include "tests/ops/composed_attention_cases.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_values.h"
#include "tests/support/sanitizer.h"

namespace dcformer {
namespace {

using test::AttentionCase;

// f32 sums of some tens of products; with scores of up to ±30 the rounding of a score (6e-8 of 30)
// is what the exponential carries on.
constexpr double kForward = 2e-5;
constexpr double kBackward = 1e-4;

// Sanitized builds run the oracle at a tenth of the speed.
constexpr int64_t kSweepSize = test::kAddressSanitizer ? 200 : 2000;

// max|a - e| <= tolerance·max(|e|, floor): gradients that cancel to almost nothing are held to the
// scale that they came from.
::testing::AssertionResult close(const std::vector<float>& actual,
                                 const std::vector<double>& expected, double tolerance,
                                 double floor) {
  double largest = floor;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  return test::all_close(actual, expected, 0, tolerance * largest);
}

// Both passes of a problem against the oracle.
void check_with_oracle(Context& context, const reference::AttentionProblem& p, uint64_t seed,
                       double forward, double backward) {
  const AttentionCase c(p);
  const auto out = c.forward(context);
  ASSERT_TRUE(close(out.o, reference::attention(p).o, forward, 1));
  const auto d_out = test::random_floats(static_cast<int64_t>(out.o.size()), seed);
  const auto g = c.backward(context, out.statistics, d_out);
  const auto e = reference::attention_backward(p, test::to_doubles(d_out));
  ASSERT_TRUE(close(g.q, e.q, backward, 1)) << "dq";
  ASSERT_TRUE(close(g.k, e.k, backward, 1)) << "dk";
  ASSERT_TRUE(close(g.v, e.v, backward, 1)) << "dv";
  ASSERT_TRUE(close(g.query_weights, e.query_weights, backward, 1)) << "dquery";
  ASSERT_TRUE(close(g.key_weights, e.key_weights, backward, 1)) << "dkey";
  ASSERT_TRUE(close(g.base_pre, e.base_pre, backward, 1)) << "dpre_base";
  ASSERT_TRUE(close(g.base_post, e.base_post, backward, 1)) << "dpost_base";
}

TEST(ComposedAttention, AgreesWithTheOracleOnRandomProblems) {
  Context context(2);
  for (int64_t i = 0; i < kSweepSize; ++i) {
    const auto p = test::random_attention_problem(static_cast<uint64_t>(1000 + i), 8192);
    SCOPED_TRACE(test::describe(p) + " (problem " + std::to_string(i) + ")");
    check_with_oracle(context, p, static_cast<uint64_t>(77 + i), kForward, kBackward);
    if (HasFatalFailure()) return;
  }
}

// The oracle rounds the same operands to bf16. Where an f32 sum lies next to the middle of two bf16
// numbers it may round the other way, by 2^-8 of one operand among many.
TEST(ComposedAttention, AgreesWithTheRoundingOracleInBf16) {
  Context context(2);
  for (int64_t i = 0; i < kSweepSize / 4; ++i) {
    const auto p =
        test::in_bf16(test::random_attention_problem(static_cast<uint64_t>(20000 + i), 8192));
    SCOPED_TRACE(test::describe(p) + " (problem " + std::to_string(i) + ")");
    check_with_oracle(context, p, static_cast<uint64_t>(99 + i), 2e-3, 4e-3);
    if (HasFatalFailure()) return;
  }
}

// More than one chunk of 512 keys: their sums are put together, by one thread or by several.
TEST(ComposedAttention, LongContextsAgreeWithTheOracleAndKeepTheirBits) {
  Context one(1);
  Context three(3);
  for (const int64_t n_key : {513, 600, 1100})
    for (const int64_t n_query : {1, 33})
      for (const int64_t window : {0, 40, 700}) {
        auto p = test::long_attention_problem(n_query, n_key, 8, 1, static_cast<uint64_t>(n_key));
        if (window > 0) p.window = window;
        SCOPED_TRACE(test::describe(p));
        check_with_oracle(one, p, 3, kForward, kBackward);
        if (HasFatalFailure()) return;
        const AttentionCase c(p);
        const auto whole = c.forward(one).o;
        EXPECT_EQ(c.forward(three).o, whole);
        for (Context* context : {&one, &three})
          for (const int64_t step : {1, 7, 32, 64})
            EXPECT_EQ(c.forward_paged(*context, DType::f32, step), whole) << step;
        EXPECT_EQ(c.forward_paged(three, DType::bf16, 1), c.forward_paged(one, DType::bf16, 64));
      }
}

// Scores of ±1e4 are known to 6e-4 in f32, which is what the exponential passes on.
TEST(ComposedAttention, HugeScoresAgreeWithTheOracle) {
  Context context(2);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto p = test::long_attention_problem(20, 40, 8, 70, seed);
    check_with_oracle(context, p, seed, 2e-3, 1e-2);
    if (HasFatalFailure()) return;
  }
}

// What the sweeps rest on, on shapes like theirs.
TEST(ComposedAttention, TheOraclesGradientsMatchDifferences) {
  using Values = std::vector<double>;
  using reference::AttentionProblem;
  for (uint64_t i = 0; i < 50; ++i) {
    const AttentionProblem p = test::random_attention_problem(40000 + i, 600);
    SCOPED_TRACE(test::describe(p));
    const Values d_out = test::random_doubles(static_cast<int64_t>(p.q.size()), 9);
    const auto g = reference::attention_backward(p, d_out);
    const auto matches = [&](Values AttentionProblem::*argument, const Values& gradient) {
      const auto function = [&](const Values& x) {
        AttentionProblem moved = p;
        moved.*argument = x;
        return test::dot(reference::attention(moved).o, d_out);
      };
      return test::gradient_matches(function, p.*argument, gradient);
    };
    EXPECT_TRUE(matches(&AttentionProblem::q, g.q)) << "q";
    EXPECT_TRUE(matches(&AttentionProblem::k, g.k)) << "k";
    EXPECT_TRUE(matches(&AttentionProblem::v, g.v)) << "v";
    EXPECT_TRUE(matches(&AttentionProblem::query_weights, g.query_weights)) << "query_weights";
    EXPECT_TRUE(matches(&AttentionProblem::key_weights, g.key_weights)) << "key_weights";
    EXPECT_TRUE(matches(&AttentionProblem::base_pre, g.base_pre)) << "base_pre";
    EXPECT_TRUE(matches(&AttentionProblem::base_post, g.base_post)) << "base_post";
  }
}

TEST(ComposedAttention, BitsDoNotDependOnThreadsOrOnTheRun) {
  Context one(1);
  Context two(2);
  Context three(3);
  for (uint64_t i = 0; i < 40; ++i) {
    auto p = test::random_attention_problem(5000 + i, 16384);
    if (i % 2 == 1) p = test::in_bf16(p);
    const AttentionCase c(p);
    const auto out = c.forward(one);
    const auto d_out = test::random_floats(static_cast<int64_t>(out.o.size()), i);
    const auto g = c.backward(one, out.statistics, d_out);
    for (Context* other : {&one, &two, &three}) {
      const auto again = c.forward(*other);
      EXPECT_EQ(again.o, out.o);
      const auto h = c.backward(*other, again.statistics, d_out);
      EXPECT_EQ(h.q, g.q);
      EXPECT_EQ(h.k, g.k);
      EXPECT_EQ(h.v, g.v);
      EXPECT_EQ(h.query_weights, g.query_weights);
      EXPECT_EQ(h.key_weights, g.key_weights);
      EXPECT_EQ(h.base_pre, g.base_pre);
    }
  }
}

TEST(ComposedAttention, PagesGiveTheSameBitsInStepsOfAnyLength) {
  Context context(2);
  for (uint64_t i = 0; i < 60; ++i) {
    auto p = test::random_attention_problem(9000 + i, 8192);
    p.query_segments.clear();
    p.key_segments.clear();
    SCOPED_TRACE(test::describe(p));
    const AttentionCase c(p);
    const auto whole = c.forward(context).o;
    for (int64_t step : {1, 7, 32, 64})
      EXPECT_EQ(c.forward_paged(context, DType::f32, step), whole);
    const auto rounded = c.forward_paged(context, DType::bf16, 64);
    EXPECT_EQ(c.forward_paged(context, DType::bf16, 1), rounded);
    EXPECT_THAT(rounded,
                ::testing::Each(::testing::Truly([](float x) { return std::isfinite(x); })));
  }
}

// One head, one key, no composition: o is v whatever the score.
TEST(ComposedAttention, ASingleKeyAndHugeScoresStayFinite) {
  Context context(1);
  for (const double scale : {1.0, 100.0}) {
    reference::AttentionProblem p;
    p.n_query = 1;
    p.n_key = 1;
    p.head_dim = 4;
    p.pre = p.post = p.dynamic = false;
    p.q = {scale, -scale, scale, scale};
    p.k = {scale, scale, -scale, scale * 2};
    p.v = {1, 2, 3, -4};
    EXPECT_TRUE(test::same_values(AttentionCase(p).forward(context).o, p.v));
  }
}

TEST(ComposedAttention, EqualScoresAverageTheValues) {
  Context context(1);
  reference::AttentionProblem p;
  p.n_query = 1;
  p.n_key = 5;
  p.head_dim = 1;
  p.pre = p.post = p.dynamic = false;
  p.q = {0};
  p.k = {1, 2, 3, 4, 5};
  p.v = {1, 2, 3, 4, 10};
  EXPECT_NEAR(AttentionCase(p).forward(context).o[0], 4.0, 1e-6);
}

TEST(ComposedAttention, RowsThatSeeNothingGiveZerosAndZeroGradients) {
  Context context(2);
  auto p = test::random_attention_problem(4, 4096);
  p.query_segments.assign(static_cast<size_t>(p.n_query), 1);
  p.key_segments.assign(static_cast<size_t>(p.n_key), 2);
  const AttentionCase c(p);
  const auto out = c.forward(context);
  EXPECT_THAT(out.o, ::testing::Each(0.0f));
  const auto d_out = test::random_floats(static_cast<int64_t>(out.o.size()), 5);
  const auto g = c.backward(context, out.statistics, d_out);
  EXPECT_THAT(g.q, ::testing::Each(0.0f));
  EXPECT_THAT(g.k, ::testing::Each(0.0f));
  EXPECT_THAT(g.v, ::testing::Each(0.0f));
}

TEST(ComposedAttention, WrongArgumentsAreNamed) {
  Context context(1);
  const auto p = test::random_attention_problem(12, 1024);
  const AttentionCase c(p);
  std::vector<float> o(p.q.size());
  const HeadView<float> out{o.data(),  p.n_query, p.n_head, p.head_dim, p.n_head * p.head_dim,
                            p.head_dim};
  const auto message = [&](auto&& change) {
    AttentionInputs in = c.inputs();
    change(in);
    try {
      composed_attention(context, in, out, nullptr);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](AttentionInputs& in) { in.mask.window = -1; }), HasSubstr("window is -1"));
  EXPECT_THAT(message([](AttentionInputs& in) { in.mask.window = 0; }), HasSubstr("window is 0"));
  EXPECT_THAT(message([](AttentionInputs& in) {
                in.mask.window = 4;
                in.mask.causal = false;
              }),
              HasSubstr("a window needs causal"));
  EXPECT_THAT(message([](AttentionInputs& in) { in.composition.rank = 9; }),
              HasSubstr("rank is 9, expected 0 to 8"));
  EXPECT_THAT(message([](AttentionInputs& in) { in.composition.n_group = 7; }),
              HasSubstr("7 groups"));
  EXPECT_THAT(message([](AttentionInputs& in) { in.v.n_token += 1; }), HasSubstr("expected v of"));
  EXPECT_THAT(message([](AttentionInputs& in) { in.q.data = nullptr; }),
              HasSubstr("q is null, expected [N,H,D]"));
  EXPECT_THAT(message([](AttentionInputs& in) { in.k.data = nullptr; }), HasSubstr("k is null"));
  EXPECT_THAT(message([](AttentionInputs& in) { in.k.dtype = DType::bf16; }),
              HasSubstr("k is bf16, expected f32"));
}

// q, k, v and o side by side in one buffer are four views that share no value; one step further
// they do. Brute force says which.
TEST(ComposedAttention, OutputsThatOverlapInputsAreNamed) {
  Context context(1);
  const int64_t tokens = 5;
  const int64_t heads = 2;
  const int64_t head_dim = 3;
  std::vector<float> buffer(400, 0.5f);
  const auto view = [&](int64_t first, int64_t token_stride, int64_t head_stride) {
    return HeadView<float>{buffer.data() + first, tokens,     heads, head_dim,
                           token_stride,          head_stride};
  };
  const auto cells = [&](const HeadView<float>& v) {
    std::set<const float*> set;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < head_dim; ++d) set.insert(v.at(t, h) + d);
    return set;
  };
  AttentionSequence sequence{0, tokens, 0, tokens, 0};
  int n_overlap = 0;
  for (const auto& [token_stride, head_stride] :
       {std::pair<int64_t, int64_t>{24, 3}, {3, 20}, {24, 6}, {7, 3}})
    for (int64_t first = 100; first < 200; ++first) {
      AttentionInputs in;
      in.q = view(100, 24, 3);
      in.k = in.v = view(300, 6, 3);
      in.sequences = {&sequence, 1};
      const HeadView<float> o = view(first, token_stride, head_stride);
      const auto a = cells(view(100, 24, 3));
      const auto b = cells(o);
      const bool expected =
          std::any_of(b.begin(), b.end(), [&](const float* cell) { return a.contains(cell); });
      n_overlap += expected ? 1 : 0;
      std::string message;
      try {
        composed_attention(context, in, o, nullptr);
      } catch (const Error& e) {
        message = e.what();
      }
      EXPECT_EQ(message.empty(), !expected) << first << " " << token_stride << " " << head_stride;
      if (expected) {
        EXPECT_THAT(message, ::testing::HasSubstr("the output o overlaps q"));
      }
    }
  EXPECT_GT(n_overlap, 20);
}

TEST(ComposedAttention, WrongGradientsAreNamed) {
  Context context(1);
  const auto p = test::random_attention_problem(12, 1024);
  const AttentionCase c(p);
  const auto out = c.forward(context);
  const auto n_q = static_cast<int64_t>(p.q.size());
  const int64_t n_kv = p.n_key * p.n_kv_head * p.head_dim;
  std::vector<float> dq(p.q.size());
  std::vector<float> dk(static_cast<size_t>(n_kv)), dv(static_cast<size_t>(n_kv));
  const auto message = [&](auto&& change) {
    AttentionInputs in = c.inputs();
    in.composition = {};
    AttentionGradients g;
    const int64_t kv_width = p.n_kv_head * p.head_dim;
    g.dq = {dq.data(), p.n_query, p.n_head, p.head_dim, p.n_head * p.head_dim, p.head_dim};
    g.dk = {dk.data(), in.k.n_token, p.n_kv_head, p.head_dim, kv_width, p.head_dim};
    g.dv = {dv.data(), in.k.n_token, p.n_kv_head, p.head_dim, kv_width, p.head_dim};
    change(g);
    const std::vector<float> d_out(static_cast<size_t>(n_q), 1.0f);
    try {
      composed_attention_backward(
          context, in, out.statistics.data(),
          {d_out.data(), p.n_query, p.n_head, p.head_dim, p.n_head * p.head_dim, p.head_dim}, g);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message([](AttentionGradients&) {}), "no error");
  EXPECT_THAT(message([](AttentionGradients& g) { g.dq.data = nullptr; }), HasSubstr("dq is null"));
  EXPECT_THAT(message([](AttentionGradients& g) { g.dk.n_token += 1; }),
              HasSubstr("expected dk ="));
  EXPECT_THAT(message([](AttentionGradients& g) { g.dv = g.dk; }),
              HasSubstr("the output dk overlaps dv"));
}

}  // namespace
}  // namespace dcformer
