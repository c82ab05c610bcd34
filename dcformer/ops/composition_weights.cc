#include "dcformer/ops/composition_weights.h"

#include <cmath>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/lanes.h"
#include "dcformer/ops/linear.h"

namespace dcformer {
namespace {

constexpr float kEpsilon = 1e-6f;

Weight block_of_qkw(const CompositionParameters& p, const CompositionSizes& s, int64_t block) {
  return {p.qkw.row_range(block * s.hidden(), s.hidden()), WeightLayout::in_out, nullptr};
}

void check(ConstMatrix x, const CompositionParameters& p, const CompositionSizes& s, int64_t rows,
           int64_t cols) {
  const int64_t hidden = s.n_block() * s.hidden();
  require(p.dw1.rows == x.cols && p.dw1.cols == hidden,
          "composition_weights: expected dw1 [E,G·4·K] = [{},{}], got [{},{}]", x.cols, hidden,
          p.dw1.rows, p.dw1.cols);
  require(p.qkw.rows == hidden && p.qkw.cols == s.hidden(),
          "composition_weights: expected qkw [G·4·K,2R·M] = [{},{}], got [{},{}]", hidden,
          s.hidden(), p.qkw.rows, p.qkw.cols);
  require(!s.gates || (p.dd.rows == x.cols && p.dd.cols == s.n_block() * s.group_heads),
          "composition_weights: expected dd [E,G·4·M] = [{},{}], got [{},{}]", x.cols,
          s.n_block() * s.group_heads, p.dd.rows, p.dd.cols);
  require(rows == x.rows && cols == s.width(),
          "composition_weights: expected weights [N,G·4·(2R+1)·M] = [{},{}], got [{},{}]", x.rows,
          s.width(), rows, cols);
}

bool is_key_block(int64_t block) { return block % 2 == 1; }

// Divides a w1 row by its RMS; returns 1/rms.
float normalise(float* w, int64_t n) {
  float sum = 0;
  for (int64_t m = 0; m < n; ++m) sum += w[m] * w[m];
  const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(n) + kEpsilon);
  for (int64_t m = 0; m < n; ++m) w[m] *= inverse;
  return inverse;
}

// One block of a token: w1 rows normalised, the gates' tanh, rounding for the cache's type.
void finish_block(float* w, const float* gate, const CompositionSizes& s, bool round,
                  float* inverse_rms) {
  const int64_t heads = s.group_heads;
  for (int64_t r = 0; r < s.rank; ++r) inverse_rms[r] = normalise(w + r * heads, heads);
  float* gates = w + 2 * s.rank * heads;
  for (int64_t m = 0; m < heads; ++m) gates[m] = gate == nullptr ? 0.0f : std::tanh(gate[m]);
  if (!round) return;
  for (int64_t i = 0; i < s.block(); ++i) w[i] = static_cast<float>(BFloat16(w[i]));
}

// With ŵ = w·q, q = 1/rms: dw = q·(dŵ - ŵ·mean(dŵ·ŵ)), row by row; w2 rows pass; dgate·(1 - gate²).
template <typename T>
void backward_block(const float* w, const float* dw, const float* inverse_rms,
                    const CompositionSizes& s, T* draw, T* dgate) {
  const int64_t heads = s.group_heads;
  for (int64_t r = 0; r < s.rank; ++r) {
    float dot = 0;
    for (int64_t m = 0; m < heads; ++m) dot += dw[r * heads + m] * w[r * heads + m];
    dot /= static_cast<float>(heads);
    for (int64_t m = 0; m < heads; ++m)
      draw[r * heads + m] =
          static_cast<T>(inverse_rms[r] * (dw[r * heads + m] - w[r * heads + m] * dot));
  }
  for (int64_t i = s.rank * heads; i < 2 * s.rank * heads; ++i) draw[i] = static_cast<T>(dw[i]);
  if (dgate == nullptr) return;
  const float* gate = w + 2 * s.rank * heads;
  for (int64_t m = 0; m < heads; ++m)
    dgate[m] = static_cast<T>(dw[2 * s.rank * heads + m] * (1.0f - gate[m] * gate[m]));
}

}  // namespace

void composition_weights(Context& context, ConstMatrix x, const CompositionParameters& p,
                         const CompositionSizes& s, GeluKind kind, MatrixView<float> weights,
                         CompositionSaved* saved, const DropoutMask& dropout_of_u) {
  check(x, p, s, weights.rows, weights.cols);
  const int64_t n = x.rows;
  const Tensor hidden = Tensor::empty(context, DType::f32, {n, s.n_block() * s.hidden()});
  linear(context, x, {p.dw1, WeightLayout::in_out, nullptr}, hidden.matrix());
  const Tensor u = Tensor::empty(context, x.dtype, hidden.shape());
  gelu(context, hidden.matrix().typed<float>(), kind, u.matrix());
  dropout(context, dropout_of_u, u.matrix());
  for (int64_t block = 0; block < s.n_block(); ++block)
    linear(context, u.matrix().col_range(block * s.hidden(), s.hidden()), block_of_qkw(p, s, block),
           Matrix(weights).col_range(block * s.block(), s.hidden()));
  Tensor gate;
  if (s.gates) {
    gate = Tensor::empty(context, DType::f32, {n, s.n_block() * s.group_heads});
    linear(context, x, {p.dd, WeightLayout::in_out, nullptr}, gate.matrix());
  }
  const Tensor inverse_rms = Tensor::empty(context, DType::f32, {n, s.n_block() * s.rank});
  parallel_chunks(context, n, row_grain(s.width()), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t block = 0; block < s.n_block(); ++block)
        finish_block(
            weights.row(t) + block * s.block(),
            s.gates ? gate.data<float>() + (t * s.n_block() + block) * s.group_heads : nullptr, s,
            x.dtype == DType::bf16 && is_key_block(block),
            inverse_rms.data<float>() + (t * s.n_block() + block) * s.rank);
  });
  if (saved != nullptr) *saved = {hidden, inverse_rms};
}

void composition_weights_backward(Context& context, ConstMatrix x, const CompositionParameters& p,
                                  const CompositionSizes& s, GeluKind kind,
                                  MatrixView<const float> weights, const CompositionSaved& saved,
                                  MatrixView<const float> dweights, MatrixView<float> dx,
                                  const CompositionGradients& gradients,
                                  const DropoutMask& dropout_of_u) {
  check(x, p, s, weights.rows, weights.cols);
  check(x, p, s, dweights.rows, dweights.cols);
  const int64_t n = x.rows;
  const DType type = x.dtype;
  const Tensor draw = Tensor::empty(context, type, {n, s.n_block() * s.hidden()});
  const Tensor dgate = Tensor::empty(context, type, {n, s.n_block() * s.group_heads});
  visit_dtype(type, "composition_weights_backward", [&](auto static_type) {
    using T = decltype(static_type);
    parallel_chunks(context, n, row_grain(s.width()), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t block = 0; block < s.n_block(); ++block) {
          const int64_t index = t * s.n_block() + block;
          backward_block<T>(weights.row(t) + block * s.block(), dweights.row(t) + block * s.block(),
                            saved.inverse_rms.data<float>() + index * s.rank, s,
                            draw.data<T>() + index * s.hidden(),
                            s.gates ? dgate.data<T>() + index * s.group_heads : nullptr);
        }
    });
  });
  const Tensor u = Tensor::empty(context, type, saved.hidden.shape());
  gelu(context, saved.hidden.matrix().typed<float>(), kind, u.matrix());
  dropout(context, dropout_of_u, u.matrix());
  const Tensor du = Tensor::empty(context, DType::f32, saved.hidden.shape());
  for (int64_t block = 0; block < s.n_block(); ++block) {
    const ConstMatrix dy = draw.matrix().col_range(block * s.hidden(), s.hidden());
    linear_backward_weight(context, u.matrix().col_range(block * s.hidden(), s.hidden()), dy,
                           WeightLayout::in_out,
                           gradients.qkw.row_range(block * s.hidden(), s.hidden()));
    linear_backward_input(context, dy, block_of_qkw(p, s, block),
                          du.matrix().col_range(block * s.hidden(), s.hidden()), false);
  }
  dropout(context, dropout_of_u, du.matrix());
  const Tensor dhidden = Tensor::empty(context, type, saved.hidden.shape());
  gelu_backward(context, saved.hidden.matrix().typed<float>(), kind, du.matrix().typed<float>(),
                dhidden.matrix());
  const Weight dw1{p.dw1, WeightLayout::in_out, nullptr};
  linear_backward_weight(context, x, dhidden.matrix(), WeightLayout::in_out, gradients.dw1);
  linear_backward_input(context, dhidden.matrix(), dw1, dx, true);
  if (!s.gates) return;
  const Weight dd{p.dd, WeightLayout::in_out, nullptr};
  linear_backward_weight(context, x, dgate.matrix(), WeightLayout::in_out, gradients.dd);
  linear_backward_input(context, dgate.matrix(), dd, dx, true);
}

}  // namespace dcformer
