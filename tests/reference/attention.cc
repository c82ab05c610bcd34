#include "tests/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dcformer/base/check.h"
#include "tests/reference/bfloat16.h"

namespace dcformer::reference {
namespace {

using Values = std::vector<double>;

enum Stage { kPre = 0, kPost = 1 };

// Indices of the flat arrays, one formula each.
struct Layout {
  explicit Layout(const AttentionProblem& problem) : p(problem) {}
  const AttentionProblem& p;

  int64_t query(int64_t i, int64_t h) const { return (i * p.n_head + h) * p.head_dim; }
  int64_t key(int64_t j, int64_t h) const {
    return (j * p.n_kv_head + h * p.n_kv_head / p.n_head) * p.head_dim;
  }
  int64_t score(int64_t h, int64_t i, int64_t j) const { return (h * p.n_query + i) * p.n_key + j; }
  int64_t block(int64_t token, int64_t group, Stage stage) const {
    return ((token * p.n_group + group) * 2 + stage) * p.block();
  }
  int64_t base(int64_t group) const { return group * p.group_heads() * p.group_heads(); }
};

void check(const AttentionProblem& p) {
  require(p.n_head % p.n_group == 0 && p.n_head % p.n_kv_head == 0, "heads do not divide");
  require(!p.window || p.causal, "a window implies causal");
  const auto need = [](const Values& values, int64_t size, const char* name) {
    require(static_cast<int64_t>(values.size()) == size, "{} has {} values, expected {}", name,
            values.size(), size);
  };
  need(p.q, p.n_query * p.n_head * p.head_dim, "q");
  need(p.k, p.n_key * p.n_kv_head * p.head_dim, "k");
  need(p.v, p.n_key * p.n_kv_head * p.head_dim, "v");
  if (p.dynamic && p.query_side)
    need(p.query_weights, p.n_query * p.n_group * 2 * p.block(), "query_weights");
  if (p.dynamic && p.key_side)
    need(p.key_weights, p.n_key * p.n_group * 2 * p.block(), "key_weights");
  const int64_t base_size = p.n_group * p.group_heads() * p.group_heads();
  if (p.base_projection && p.pre) need(p.base_pre, base_size, "base_pre");
  if (p.base_projection && p.post) need(p.base_post, base_size, "base_post");
  if (!p.query_segments.empty() || !p.key_segments.empty())
    require(static_cast<int64_t>(p.query_segments.size()) == p.n_query &&
                static_cast<int64_t>(p.key_segments.size()) == p.n_key,
            "segments do not fit");
}

// Item 6's term of one side: out[m] += Σ_r (Σ_n a[n]·w1[r,n])·w2[r,m] + a[m]·g[m].
void add_side(const AttentionProblem& p, const double* block, const Values& a, Values& out) {
  const int64_t M = p.group_heads(), R = p.rank;
  for (int64_t r = 0; r < R; ++r) {
    double inner = 0;
    for (int64_t n = 0; n < M; ++n) inner += a[n] * block[r * M + n];
    for (int64_t m = 0; m < M; ++m) out[m] += inner * block[(R + r) * M + m];
  }
  if (p.gates)
    for (int64_t m = 0; m < M; ++m) out[m] += a[m] * block[2 * R * M + m];
}

// Differentiates add_side: adds to da and to the block's gradient.
void add_side_backward(const AttentionProblem& p, const double* block, const Values& a,
                       const Values& dout, Values& da, double* dblock) {
  const int64_t M = p.group_heads(), R = p.rank;
  for (int64_t r = 0; r < R; ++r) {
    double inner = 0, dinner = 0;
    for (int64_t n = 0; n < M; ++n) inner += a[n] * block[r * M + n];
    for (int64_t m = 0; m < M; ++m) dinner += dout[m] * block[(R + r) * M + m];
    for (int64_t n = 0; n < M; ++n) {
      da[n] += dinner * block[r * M + n];
      dblock[r * M + n] += dinner * a[n];
      dblock[(R + r) * M + n] += inner * dout[n];
    }
  }
  if (p.gates) {
    for (int64_t m = 0; m < M; ++m) {
      da[m] += dout[m] * block[2 * R * M + m];
      dblock[2 * R * M + m] += a[m] * dout[m];
    }
  }
}

bool stage_on(const AttentionProblem& p, Stage stage) { return stage == kPre ? p.pre : p.post; }

const Values& base_of(const AttentionProblem& p, Stage stage) {
  return stage == kPre ? p.base_pre : p.base_post;
}

// Compose_c at one (i,j) for the heads of one group (item 6).
Values compose(const AttentionProblem& p, Stage stage, int64_t group, int64_t i, int64_t j,
               const Values& a) {
  Values out = a;
  if (!stage_on(p, stage)) return out;
  const Layout at(p);
  const int64_t M = p.group_heads();
  if (p.base_projection) {
    const double* w = &base_of(p, stage)[at.base(group)];
    for (int64_t n = 0; n < M; ++n)
      for (int64_t m = 0; m < M; ++m) out[m] += a[n] * w[n * M + m];
  }
  if (p.dynamic && p.query_side) add_side(p, &p.query_weights[at.block(i, group, stage)], a, out);
  if (p.dynamic && p.key_side) add_side(p, &p.key_weights[at.block(j, group, stage)], a, out);
  return out;
}

// Differentiates compose: returns the gradient of a, adds to those of the weights.
Values compose_backward(const AttentionProblem& p, Stage stage, int64_t group, int64_t i, int64_t j,
                        const Values& a, const Values& dout, AttentionGradients& gradients) {
  Values da = dout;
  if (!stage_on(p, stage)) return da;
  const Layout at(p);
  const int64_t M = p.group_heads();
  if (p.base_projection) {
    const double* w = &base_of(p, stage)[at.base(group)];
    Values& dbase = stage == kPre ? gradients.base_pre : gradients.base_post;
    for (int64_t n = 0; n < M; ++n) {
      for (int64_t m = 0; m < M; ++m) {
        da[n] += w[n * M + m] * dout[m];
        dbase[at.base(group) + n * M + m] += a[n] * dout[m];
      }
    }
  }
  if (p.dynamic && p.query_side) {
    const int64_t block = at.block(i, group, stage);
    add_side_backward(p, &p.query_weights[block], a, dout, da, &gradients.query_weights[block]);
  }
  if (p.dynamic && p.key_side) {
    const int64_t block = at.block(j, group, stage);
    add_side_backward(p, &p.key_weights[block], a, dout, da, &gradients.key_weights[block]);
  }
  return da;
}

// One entry of every head of a group out of an array [H,T,S], and back.
Values gather(const AttentionProblem& p, const Values& scores, int64_t group, int64_t i,
              int64_t j) {
  Values a(p.group_heads());
  for (int64_t m = 0; m < p.group_heads(); ++m)
    a[m] = scores[Layout(p).score(group * p.group_heads() + m, i, j)];
  return a;
}

void scatter(const AttentionProblem& p, const Values& a, int64_t group, int64_t i, int64_t j,
             Values& scores) {
  for (int64_t m = 0; m < p.group_heads(); ++m)
    scores[Layout(p).score(group * p.group_heads() + m, i, j)] = a[m];
}

// Calls f(i, j) for every pair that is visible; all else keeps its zeros, so that whatever lies in
// keys that nobody sees has no effect.
template <typename F>
void for_visible(const AttentionProblem& p, F&& f) {
  for (int64_t i = 0; i < p.n_query; ++i)
    for (int64_t j = 0; j < p.n_key; ++j)
      if (visible(p, i, j)) f(i, j);
}

// The steps of items 4 to 7, each [H,T,S].
struct Steps {
  Values scores;       // A
  Values probability;  // P
  Values composed;     // A''
};

Steps run_steps(const AttentionProblem& p, AttentionResult& result) {
  const Layout at(p);
  const size_t size = static_cast<size_t>(p.n_head * p.n_query * p.n_key);
  Steps steps{Values(size), Values(size), Values(size)};
  Values pre_composed(size);
  for_visible(p, [&](int64_t i, int64_t j) {
    for (int64_t h = 0; h < p.n_head; ++h) {
      double sum = 0;
      for (int64_t d = 0; d < p.head_dim; ++d)
        sum += p.q[at.query(i, h) + d] * p.k[at.key(j, h) + d];
      steps.scores[at.score(h, i, j)] = sum / std::sqrt(static_cast<double>(p.head_dim));
    }
    for (int64_t g = 0; g < p.n_group; ++g)
      scatter(p, compose(p, kPre, g, i, j, gather(p, steps.scores, g, i, j)), g, i, j,
              pre_composed);
  });
  result.maximum.assign(p.n_query * p.n_head, 0);
  result.sum.assign(p.n_query * p.n_head, 0);
  for (int64_t i = 0; i < p.n_query; ++i) {
    for (int64_t h = 0; h < p.n_head; ++h) {
      double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t j = 0; j < p.n_key; ++j)
        if (visible(p, i, j)) maximum = std::max(maximum, pre_composed[at.score(h, i, j)]);
      for (int64_t j = 0; j < p.n_key; ++j)
        if (visible(p, i, j)) sum += std::exp(pre_composed[at.score(h, i, j)] - maximum);
      if (sum == 0) continue;  // no visible key
      for (int64_t j = 0; j < p.n_key; ++j)
        if (visible(p, i, j))
          steps.probability[at.score(h, i, j)] =
              std::exp(pre_composed[at.score(h, i, j)] - maximum) / sum;
      result.maximum[i * p.n_head + h] = maximum;
      result.sum[i * p.n_head + h] = sum;
    }
  }
  for_visible(p, [&](int64_t i, int64_t j) {
    for (int64_t g = 0; g < p.n_group; ++g)
      scatter(p, compose(p, kPost, g, i, j, gather(p, steps.probability, g, i, j)), g, i, j,
              steps.composed);
  });
  return steps;
}

}  // namespace

bool visible(const AttentionProblem& p, int64_t i, int64_t j) {
  const int64_t position = p.first_position() + i;
  if (j >= p.key_length.value_or(p.n_key)) return false;
  if (p.causal && j > position) return false;
  if (p.window && j <= position - *p.window) return false;
  return p.query_segments.empty() || p.query_segments[i] == p.key_segments[j];
}

AttentionResult attention(const AttentionProblem& p) {
  check(p);
  const Layout at(p);
  AttentionResult result;
  const Steps steps = run_steps(p, result);
  result.o.assign(p.q.size(), 0);
  for_visible(p, [&](int64_t i, int64_t j) {
    for (int64_t h = 0; h < p.n_head; ++h) {
      double weight = steps.composed[at.score(h, i, j)];
      if (p.round_to_bf16) weight = to_bfloat16(weight);
      for (int64_t d = 0; d < p.head_dim; ++d)
        result.o[at.query(i, h) + d] += weight * p.v[at.key(j, h) + d];
    }
  });
  return result;
}

AttentionGradients attention_backward(const AttentionProblem& p, const Values& gradient_of_o) {
  check(p);
  require(gradient_of_o.size() == p.q.size(), "output gradient has {} values, expected {}",
          gradient_of_o.size(), p.q.size());
  const auto operand = [&](double x) { return p.round_to_bf16 ? to_bfloat16(x) : x; };
  Values output_gradient = gradient_of_o;
  for (double& x : output_gradient) x = operand(x);
  const Layout at(p);
  AttentionResult result;
  const Steps steps = run_steps(p, result);
  AttentionGradients gradients{Values(p.q.size()),           Values(p.k.size()),
                               Values(p.v.size()),           Values(p.query_weights.size()),
                               Values(p.key_weights.size()), Values(p.base_pre.size()),
                               Values(p.base_post.size())};
  // dP = Compose_post backward of dA''[h,i,j] = do[i,h]·v[j,h].
  Values dprobability(steps.scores.size());
  for_visible(p, [&](int64_t i, int64_t j) {
    for (int64_t g = 0; g < p.n_group; ++g) {
      Values dcomposed(p.group_heads());
      for (int64_t m = 0; m < p.group_heads(); ++m) {
        const int64_t h = g * p.group_heads() + m;
        for (int64_t d = 0; d < p.head_dim; ++d) {
          const double dout = output_gradient[at.query(i, h) + d];
          dcomposed[m] += dout * p.v[at.key(j, h) + d];
          gradients.v[at.key(j, h) + d] += operand(steps.composed[at.score(h, i, j)]) * dout;
        }
      }
      const Values a = gather(p, steps.probability, g, i, j);
      scatter(p, compose_backward(p, kPost, g, i, j, a, dcomposed, gradients), g, i, j,
              dprobability);
    }
  });
  // Δ[h,i] = Σ_j P·dP: with a composition after the softmax it is not rowsum(do∘o).
  Values delta(p.n_head * p.n_query);
  for_visible(p, [&](int64_t i, int64_t j) {
    for (int64_t h = 0; h < p.n_head; ++h)
      delta[h * p.n_query + i] +=
          steps.probability[at.score(h, i, j)] * dprobability[at.score(h, i, j)];
  });
  for_visible(p, [&](int64_t i, int64_t j) {
    for (int64_t g = 0; g < p.n_group; ++g) {
      Values dpre(p.group_heads());
      for (int64_t m = 0; m < p.group_heads(); ++m) {
        const int64_t h = g * p.group_heads() + m;
        dpre[m] = steps.probability[at.score(h, i, j)] *
                  (dprobability[at.score(h, i, j)] - delta[h * p.n_query + i]);
      }
      const Values a = gather(p, steps.scores, g, i, j);
      const Values dscore = compose_backward(p, kPre, g, i, j, a, dpre, gradients);
      for (int64_t m = 0; m < p.group_heads(); ++m) {
        const int64_t h = g * p.group_heads() + m;
        const double scaled = operand(dscore[m]) / std::sqrt(static_cast<double>(p.head_dim));
        for (int64_t d = 0; d < p.head_dim; ++d) {
          gradients.q[at.query(i, h) + d] += scaled * p.k[at.key(j, h) + d];
          gradients.k[at.key(j, h) + d] += scaled * p.q[at.query(i, h) + d];
        }
      }
    }
  });
  return gradients;
}

}  // namespace dcformer::reference
