// Composed attention from the installed library alone: forward and backward on buffers of this
// program's own, the gradient checked against differences of the forward pass.
//
//   cmake --install build --prefix /tmp/dcformer
//   cmake -S examples/attention -B /tmp/example -DCMAKE_PREFIX_PATH=/tmp/dcformer
//   cmake --build /tmp/example && /tmp/example/attention

#include <dcformer/base/context.h>
#include <dcformer/base/error.h>
#include <dcformer/ops/composed_attention.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int64_t kTokens = 40;
constexpr int64_t kHeads = 4;
constexpr int64_t kHeadDim = 16;
constexpr int64_t kRank = 2;
constexpr int64_t kWidth = kHeads * kHeadDim;
// A token's composition weights of one side and stage: R rows w1, R rows w2, one row of gates.
constexpr int64_t kBlock = (2 * kRank + 1) * kHeads;

/// A cheap source of numbers in [-1, 1).
std::vector<float> numbers(int64_t n, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
  }
  return values;
}

/// q, k and v lie in one fused buffer [token][q k v], as a projection writes them: three strided
/// views.
struct Problem {
  std::vector<float> qkv = numbers(kTokens * 3 * kWidth, 1);
  // For each token: (pre, query), (pre, key), (post, query), (post, key).
  std::vector<float> weights = numbers(kTokens * 4 * kBlock, 2);
  std::vector<float> o = std::vector<float>(kTokens * kWidth);
  std::vector<float> statistics = std::vector<float>(kTokens * kHeads * 2);
  dcformer::AttentionSequence sequence{0, kTokens, 0, kTokens, 0};

  dcformer::HeadView<float> part(std::vector<float>& buffer, int64_t index) const {
    return {buffer.data() + index * kWidth, kTokens, kHeads, kHeadDim, 3 * kWidth, kHeadDim};
  }
  dcformer::AttentionInputs inputs() {
    dcformer::AttentionInputs in;
    in.q = part(qkv, 0);
    in.k = part(qkv, 1);
    in.v = part(qkv, 2);
    in.composition.rank = kRank;
    in.composition.pre = in.composition.post = in.composition.gates = true;
    in.composition.query = {weights.data(), 4 * kBlock, 4 * kBlock, 2 * kBlock};
    in.composition.key = {weights.data() + kBlock, 4 * kBlock, 4 * kBlock, 2 * kBlock};
    in.mask.window = 24;
    in.sequences = {&sequence, 1};
    return in;
  }
  /// The outputs' sum, weighted with `d_out`.
  double forward(dcformer::Context& context, const std::vector<float>& d_out) {
    const dcformer::HeadView<float> out{o.data(), kTokens, kHeads, kHeadDim, kWidth, kHeadDim};
    dcformer::composed_attention(context, inputs(), out, statistics.data());
    double sum = 0;
    for (size_t i = 0; i < o.size(); ++i) sum += static_cast<double>(o[i]) * d_out[i];
    return sum;
  }
};

/// The relative difference of the gradient's slope along a direction from that of the forward pass.
double slope_error(dcformer::Context& context, Problem& problem, std::vector<float>& values,
                   const std::vector<float>& gradient, const std::vector<float>& d_out) {
  const std::vector<float> direction = numbers(static_cast<int64_t>(values.size()), 3);
  const std::vector<float> start = values;
  double expected = 0;
  for (size_t i = 0; i < values.size(); ++i)
    expected += static_cast<double>(gradient[i]) * direction[i];
  constexpr double kStep = 2e-3;
  const auto at = [&](double step) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(start[i] + step * direction[i]);
    return problem.forward(context, d_out);
  };
  const double slope = (at(kStep) - at(-kStep)) / (2 * kStep);
  values = start;
  return std::abs(slope - expected) / std::abs(expected);
}

int run() {
  dcformer::Context context;
  Problem problem;
  const std::vector<float> d_out = numbers(kTokens * kWidth, 4);
  problem.forward(context, d_out);

  std::vector<float> dqkv(problem.qkv.size());
  std::vector<float> dweights(problem.weights.size());
  dcformer::AttentionGradients gradients;
  gradients.dq = problem.part(dqkv, 0);
  gradients.dk = problem.part(dqkv, 1);
  gradients.dv = problem.part(dqkv, 2);
  gradients.dquery = dweights.data();
  gradients.dkey = dweights.data() + kBlock;
  const dcformer::HeadView<const float> d{d_out.data(), kTokens, kHeads,
                                          kHeadDim,     kWidth,  kHeadDim};
  dcformer::composed_attention_backward(context, problem.inputs(), problem.statistics.data(), d,
                                        gradients);

  const double qkv = slope_error(context, problem, problem.qkv, dqkv, d_out);
  const double weights = slope_error(context, problem, problem.weights, dweights, d_out);
  std::printf("gradient against differences: q, k, v %.1e; composition weights %.1e\n", qkv,
              weights);

  // A mistake is an exception that names the argument and what was expected.
  dcformer::AttentionInputs wrong = problem.inputs();
  wrong.composition.rank = 9;
  try {
    dcformer::composed_attention(
        context, wrong,
        dcformer::HeadView<float>{problem.o.data(), kTokens, kHeads, kHeadDim, kWidth, kHeadDim},
        nullptr);
    return 1;
  } catch (const dcformer::Error& e) {
    std::printf("as it should be: %s\n", e.what());
  }
  return qkv < 1e-2 && weights < 1e-2 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const dcformer::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
