#include "tests/reference/composition_weights.h"

#include <cmath>

#include "dcformer/base/check.h"
#include "tests/reference/bfloat16.h"

namespace dcformer::reference {
namespace {

using Values = std::vector<double>;

constexpr double kEpsilon = 1e-6;

// The sizes by their letters, and the indices of the flat arrays.
struct Layout {
  explicit Layout(const CompositionProblem& p)
      : N(p.n_token), E(p.width), G(p.n_group), M(p.group_heads), R(p.rank), K(p.hidden()) {}
  int64_t N, E, G, M, R, K;

  int64_t dw1(int64_t e, int64_t g, int64_t cs, int64_t k) const {
    return ((e * G + g) * 4 + cs) * K + k;
  }
  int64_t qkw(int64_t g, int64_t cs, int64_t k, int64_t row, int64_t m) const {
    return (((g * 4 + cs) * K + k) * 2 * R + row) * M + m;
  }
  int64_t dd(int64_t e, int64_t g, int64_t cs, int64_t m) const {
    return (e * G + g) * 4 * M + cs * M + m;
  }
  int64_t block(int64_t n, int64_t g, int64_t cs) const {
    return ((n * G + g) * 4 + cs) * (2 * R + 1) * M;
  }
};

void check(const CompositionProblem& p) {
  const Layout at(p);
  const auto need = [](const Values& values, int64_t size, const char* name) {
    require(static_cast<int64_t>(values.size()) == size, "{} has {} values, expected {}", name,
            values.size(), size);
  };
  need(p.x, at.N * at.E, "x");
  need(p.dw1, at.E * at.G * 4 * at.K, "dw1");
  need(p.qkw, at.G * 4 * at.K * 2 * at.R * at.M, "qkw");
  if (p.gates) need(p.dd, at.E * at.G * 4 * at.M, "dd");
}

// One token's values for one (group, cs), before and after each step.
struct Steps {
  Values hidden;  // x·dw1, [K]
  Values u;       // its GELU
  Values w;       // u·qkw, [2R,M]
  Values rms;     // sqrt(mean(w1²) + eps) of each row, [R]
  Values gate;    // [M]
};

Steps run_steps(const CompositionProblem& p, int64_t n, int64_t g, int64_t cs) {
  const Layout at(p);
  Steps s{Values(at.K), Values(at.K), Values(2 * at.R * at.M), Values(at.R), Values(at.M)};
  for (int64_t k = 0; k < at.K; ++k) {
    for (int64_t e = 0; e < at.E; ++e)
      s.hidden[k] += p.x[n * at.E + e] * p.dw1[at.dw1(e, g, cs, k)];
    s.u[k] = gelu(s.hidden[k], p.gelu);
    if (p.round_to_bf16) s.u[k] = to_bfloat16(s.u[k]);
  }
  for (int64_t row = 0; row < 2 * at.R; ++row)
    for (int64_t m = 0; m < at.M; ++m)
      for (int64_t k = 0; k < at.K; ++k)
        s.w[row * at.M + m] += s.u[k] * p.qkw[at.qkw(g, cs, k, row, m)];
  for (int64_t r = 0; r < at.R; ++r) {
    double squares = 0;
    for (int64_t m = 0; m < at.M; ++m) squares += s.w[r * at.M + m] * s.w[r * at.M + m];
    s.rms[r] = std::sqrt(squares / static_cast<double>(at.M) + kEpsilon);
  }
  for (int64_t m = 0; m < at.M && p.gates; ++m) {
    double sum = 0;
    for (int64_t e = 0; e < at.E; ++e) sum += p.x[n * at.E + e] * p.dd[at.dd(e, g, cs, m)];
    s.gate[m] = std::tanh(sum);
  }
  return s;
}

template <typename F>
void for_blocks(const CompositionProblem& p, F&& f) {
  for (int64_t n = 0; n < p.n_token; ++n)
    for (int64_t g = 0; g < p.n_group; ++g)
      for (int64_t cs = 0; cs < 4; ++cs) f(n, g, cs);
}

CompositionProblem with_rounded_operands(const CompositionProblem& problem) {
  CompositionProblem p = problem;
  for (Values* operand : {&p.x, &p.dw1, &p.qkw, &p.dd}) *operand = to_bfloat16(*operand);
  return p;
}

}  // namespace

Values composition_weights(const CompositionProblem& problem) {
  check(problem);
  const CompositionProblem p = problem.round_to_bf16 ? with_rounded_operands(problem) : problem;
  const Layout at(p);
  Values weights(at.N * at.G * 4 * p.block());
  for_blocks(p, [&](int64_t n, int64_t g, int64_t cs) {
    const Steps s = run_steps(p, n, g, cs);
    double* block = &weights[at.block(n, g, cs)];
    for (int64_t row = 0; row < 2 * at.R; ++row)
      for (int64_t m = 0; m < at.M; ++m)
        block[row * at.M + m] = s.w[row * at.M + m] / (row < at.R ? s.rms[row] : 1);
    for (int64_t m = 0; m < at.M; ++m) block[2 * at.R * at.M + m] = s.gate[m];
    const bool key_side = cs % 2 == 1;
    if (p.round_to_bf16 && key_side)
      for (int64_t x = 0; x < p.block(); ++x) block[x] = to_bfloat16(block[x]);
  });
  return weights;
}

Values composition_side(const CompositionProblem& p, const Values& weights, int64_t side) {
  const Layout at(p);
  Values out;
  for (int64_t n = 0; n < at.N; ++n) {
    for (int64_t g = 0; g < at.G; ++g) {
      for (int64_t stage = 0; stage < 2; ++stage) {
        const auto block = weights.begin() + at.block(n, g, 2 * stage + side);
        out.insert(out.end(), block, block + p.block());
      }
    }
  }
  return out;
}

CompositionGradients composition_weights_backward(const CompositionProblem& p,
                                                  const Values& weights_gradient) {
  check(p);
  const Layout at(p);
  CompositionGradients gradients{Values(p.x.size()), Values(p.dw1.size()), Values(p.qkw.size()),
                                 Values(p.dd.size())};
  for_blocks(p, [&](int64_t n, int64_t g, int64_t cs) {
    const Steps s = run_steps(p, n, g, cs);
    const double* dblock = &weights_gradient[at.block(n, g, cs)];
    // y = w/rms: dw = (dy - y·mean(dy·y)) / rms.
    Values dw(dblock, dblock + 2 * at.R * at.M);
    for (int64_t r = 0; r < at.R; ++r) {
      double mean = 0;
      for (int64_t m = 0; m < at.M; ++m)
        mean += dw[r * at.M + m] * s.w[r * at.M + m] / s.rms[r] / static_cast<double>(at.M);
      for (int64_t m = 0; m < at.M; ++m)
        dw[r * at.M + m] = (dw[r * at.M + m] - s.w[r * at.M + m] / s.rms[r] * mean) / s.rms[r];
    }
    for (int64_t k = 0; k < at.K; ++k) {
      double du = 0;
      for (int64_t row = 0; row < 2 * at.R; ++row) {
        for (int64_t m = 0; m < at.M; ++m) {
          du += dw[row * at.M + m] * p.qkw[at.qkw(g, cs, k, row, m)];
          gradients.qkw[at.qkw(g, cs, k, row, m)] += s.u[k] * dw[row * at.M + m];
        }
      }
      const double dhidden = du * gelu_derivative(s.hidden[k], p.gelu);
      for (int64_t e = 0; e < at.E; ++e) {
        gradients.x[n * at.E + e] += dhidden * p.dw1[at.dw1(e, g, cs, k)];
        gradients.dw1[at.dw1(e, g, cs, k)] += dhidden * p.x[n * at.E + e];
      }
    }
    for (int64_t m = 0; m < at.M && p.gates; ++m) {
      const double dsum = dblock[2 * at.R * at.M + m] * (1 - s.gate[m] * s.gate[m]);
      for (int64_t e = 0; e < at.E; ++e) {
        gradients.x[n * at.E + e] += dsum * p.dd[at.dd(e, g, cs, m)];
        gradients.dd[at.dd(e, g, cs, m)] += dsum * p.x[n * at.E + e];
      }
    }
  });
  return gradients;
}

}  // namespace dcformer::reference
