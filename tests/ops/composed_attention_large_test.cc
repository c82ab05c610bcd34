#include <gtest/gtest.h>
#include <sys/resource.h>

#include <optional>
#include <vector>

#include "dcformer/ops/composed_attention.h"
#include "dcformer/tensor/tensor.h"
#include "tests/reference/attention.h"
#include "tests/support/compare.h"
#include "tests/support/random_values.h"

namespace dcformer {
namespace {

constexpr int64_t kHeads = 8;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kWidth = kHeads * kHeadDim;
constexpr int64_t kRank = 2;
constexpr int64_t kBlock = (2 * kRank + 1) * kHeads;
// The last rows see all keys, and theirs are the only ones that see the last keys: the oracle can
// compute them alone.
constexpr int64_t kChecked = 3;

Tensor random_rows(Context& context, int64_t tokens, int64_t width, uint64_t seed, double scale) {
  const Tensor t = Tensor::empty(context, DType::f32, {tokens, width});
  const auto values = test::random_floats(4096 + 1, seed);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] =
        static_cast<float>(scale) * values[static_cast<size_t>((i * 31 + i / 4099) % 4097)];
  return t;
}

std::vector<double> rows_of(const Tensor& t, int64_t begin) {
  const int64_t width = t.shape()[1];
  const auto values = t.span<float>().subspan(static_cast<size_t>(begin * width));
  return test::to_doubles(values);
}

// Both passes at full length within 2 GiB, the last rows against the oracle.
void run_long(int64_t tokens, std::optional<int64_t> window) {
  Context context(2);
  const Tensor q = random_rows(context, tokens, kWidth, 1, 1);
  const Tensor k = random_rows(context, tokens, kWidth, 2, 1);
  const Tensor v = random_rows(context, tokens, kWidth, 3, 1);
  const Tensor d_out = random_rows(context, tokens, kWidth, 4, 1);
  const Tensor query = random_rows(context, tokens, 2 * kBlock, 5, 0.3);
  const Tensor key = random_rows(context, tokens, 2 * kBlock, 6, 0.3);
  const auto like = [&](const Tensor& t) { return Tensor::empty(context, DType::f32, t.shape()); };
  const Tensor o = like(q), dq = like(q), dk = like(k), dv = like(v);
  const Tensor dquery = like(query), dkey = like(key);
  const Tensor statistics = Tensor::empty(context, DType::f32, {tokens, kHeads, 2});
  const AttentionSequence sequence{0, tokens, 0, tokens, 0};
  AttentionInputs in;
  in.q = q.heads(kHeads);
  in.k = k.heads(kHeads);
  in.v = v.heads(kHeads);
  in.mask.window = window;
  in.sequences = {&sequence, 1};
  Composition& c = in.composition;
  c.rank = kRank;
  c.pre = c.post = c.gates = true;
  c.query = {query.data<float>(), 2 * kBlock, 2 * kBlock, kBlock};
  c.key = {key.data<float>(), 2 * kBlock, 2 * kBlock, kBlock};
  composed_attention(context, in, o.heads(kHeads), statistics.data<float>());
  AttentionGradients g;
  g.dq = dq.heads(kHeads).typed<float>();
  g.dk = dk.heads(kHeads).typed<float>();
  g.dv = dv.heads(kHeads).typed<float>();
  g.dquery = dquery.data<float>();
  g.dkey = dkey.data<float>();
  composed_attention_backward(context, in, statistics.data<float>(),
                              d_out.heads(kHeads).typed<float>(), g);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LE(usage.ru_maxrss, 2 << 20) << "KiB resident";

  reference::AttentionProblem p;
  p.n_query = kChecked;
  // Keys before the windows of the last rows take no part.
  p.n_key = window ? *window + kChecked - 1 : tokens;
  p.n_head = p.n_kv_head = kHeads;
  p.head_dim = kHeadDim;
  p.window = window;
  p.q = rows_of(q, tokens - kChecked);
  p.k = rows_of(k, tokens - p.n_key);
  p.v = rows_of(v, tokens - p.n_key);
  p.query_weights = rows_of(query, tokens - kChecked);
  p.key_weights = rows_of(key, tokens - p.n_key);
  EXPECT_TRUE(test::max_close(rows_of(o, tokens - kChecked), reference::attention(p).o, 2e-5));
  const auto e = reference::attention_backward(p, rows_of(d_out, tokens - kChecked));
  const auto last_rows = [](const std::vector<double>& all, int64_t width) {
    return std::vector<double>(all.end() - kChecked * width, all.end());
  };
  EXPECT_TRUE(test::max_close(rows_of(dq, tokens - kChecked), e.q, 1e-4));
  EXPECT_TRUE(test::max_close(rows_of(dk, tokens - kChecked), last_rows(e.k, kWidth), 1e-4));
  EXPECT_TRUE(test::max_close(rows_of(dv, tokens - kChecked), last_rows(e.v, kWidth), 1e-4));
  EXPECT_TRUE(test::max_close(rows_of(dquery, tokens - kChecked), e.query_weights, 1e-4));
  EXPECT_TRUE(test::max_close(rows_of(dkey, tokens - kChecked),
                              last_rows(e.key_weights, 2 * kBlock), 1e-4));
}

TEST(ComposedAttentionLarge, Window256Of32768TokensWithin2GiB) { run_long(32768, 256); }

TEST(ComposedAttentionLarge, Global16384TokensWithin2GiB) { run_long(16384, std::nullopt); }

}  // namespace
}  // namespace dcformer
