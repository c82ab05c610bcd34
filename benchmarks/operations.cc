#include <fmt/format.h>

#include "benchmarks/bench.h"
#include "dcformer/ops/adamw.h"
#include "dcformer/ops/composition_weights.h"
#include "dcformer/ops/cross_entropy.h"
#include "dcformer/ops/embedding.h"
#include "dcformer/ops/gelu.h"
#include "dcformer/ops/linear.h"
#include "dcformer/ops/mgate.h"
#include "dcformer/ops/rms_norm.h"
#include "dcformer/ops/rope.h"
#include "dcformer/ops/swiglu.h"

namespace dcformer::bench {
namespace {

// The 405M shape.
constexpr int64_t kTokens = 2048;
constexpr int64_t kWidth = 1024;
constexpr int64_t kHidden = 2816;
constexpr int64_t kHeads = 16;

/// Tensors and the names of a line each: forward and backward milliseconds.
class Operations {
 public:
  explicit Operations(Bench& bench) : bench_(bench), c_(bench.context()) {}

  void time(const std::string& name, const std::function<void()>& body) {
    bench_.add({"operations." + name, bench_.median(5, body) * 1e3, "ms", "",
                "2048 tokens of the 405M shape, f32"});
  }
  Tensor random(int64_t rows, int64_t cols) { return random_tensor(c_, DType::f32, {rows, cols}); }
  static MatrixView<float> view(const Tensor& t) { return t.matrix().typed<float>(); }

  void linear_layer() {
    const Tensor x = random(kTokens, kWidth), w = random(kHidden, kWidth),
                 y = random(kTokens, kHidden);
    const Tensor dx = random(kTokens, kWidth), dw = random(kHidden, kWidth),
                 row = random(1, kHidden);
    const Weight weight{w.matrix(), WeightLayout::out_in, nullptr};
    time("linear", [&] { linear(c_, x.matrix(), weight, y.matrix()); });
    time("linear_one_row", [&] { linear(c_, x.matrix().row_range(0, 1), weight, row.matrix()); });
    time("linear_backward_input",
         [&] { linear_backward_input(c_, y.matrix(), weight, dx.matrix(), false); });
    time("linear_backward_weight", [&] {
      linear_backward_weight(c_, x.matrix(), y.matrix(), WeightLayout::out_in, dw.matrix());
    });
  }

  void norms_and_rotation() {
    const Tensor x = random(kTokens, kWidth), y = random(kTokens, kWidth),
                 scale = random(1, kWidth);
    const Tensor dscale = random(1, kWidth);
    time("rms_norm", [&] { rms_norm(c_, view(x), scale.data<float>(), 1e-6f, y.matrix()); });
    time("rms_norm_backward", [&] {
      rms_norm_backward(c_, view(x), scale.data<float>(), 1e-6f, view(x), view(y), false,
                        dscale.data<float>());
    });
    const RopeTable table(kTokens, kWidth / kHeads, 10000);
    std::vector<int64_t> positions(kTokens);
    for (int64_t i = 0; i < kTokens; ++i) positions[static_cast<size_t>(i)] = i;
    const auto heads = x.heads(kHeads).typed<float>();
    time("rope",
         [&] { rope(c_, heads, positions, table, RopeDirection::forward, y.heads(kHeads)); });
    time("rope_backward",
         [&] { rope(c_, heads, positions, table, RopeDirection::inverse, y.heads(kHeads)); });
  }

  void mlp() {
    const Tensor a = random(kTokens, kHidden), b = random(kTokens, kHidden),
                 y = random(kTokens, kHidden);
    const Tensor da = random(kTokens, kHidden), gate = random(kTokens, 44),
                 dgate = random(kTokens, 44);
    time("swiglu", [&] { swiglu(c_, view(a), view(b), {}, y.matrix()); });
    time("swiglu_backward",
         [&] { swiglu_backward(c_, view(a), view(b), {}, view(y), da.matrix(), y.matrix(), {}); });
    time("mgate", [&] { mgate(c_, view(gate), view(dgate)); });
    time("mgate_backward", [&] { mgate_backward(c_, view(gate), view(gate), dgate.matrix()); });
    time("gelu", [&] { gelu(c_, view(a), GeluKind::erf, y.matrix()); });
    time("gelu_backward", [&] { gelu_backward(c_, view(a), GeluKind::erf, view(b), y.matrix()); });
  }

  void composition() {
    const CompositionSizes s{1, 2, kHeads, true};
    const Tensor x = random(kTokens, kWidth), dw1 = random(kWidth, 4 * s.hidden()),
                 qkw = random(4 * s.hidden(), s.hidden());
    const Tensor dd = random(kWidth, 4 * kHeads), w = random(kTokens, s.width()),
                 dw = random(kTokens, s.width());
    const Tensor dx = random(kTokens, kWidth), g1 = random(kWidth, 4 * s.hidden()),
                 g2 = random(4 * s.hidden(), s.hidden());
    const Tensor g3 = random(kWidth, 4 * kHeads);
    const CompositionParameters p{dw1.matrix(), qkw.matrix(), dd.matrix()};
    CompositionSaved saved;
    time("composition_weights",
         [&] { composition_weights(c_, x.matrix(), p, s, GeluKind::erf, view(w), &saved); });
    time("composition_weights_backward", [&] {
      composition_weights_backward(c_, x.matrix(), p, s, GeluKind::erf, view(w), saved, view(dw),
                                   view(dx), {g1.matrix(), g2.matrix(), g3.matrix()});
    });
  }

  void ends() {
    constexpr int64_t kVocabulary = 50257;
    const Tensor table = random(kVocabulary, kWidth), dtable = random(kVocabulary, kWidth);
    const Tensor x = random(kTokens, kWidth), dx = random(kTokens, kWidth);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kTokens; ++i)
      ids.push_back(static_cast<int32_t>(i * 7919 % kVocabulary));
    time("embedding", [&] { embedding(c_, ids, table.matrix(), view(x)); });
    time("embedding_backward", [&] { embedding_backward(c_, ids, view(dx), view(dtable)); });
    const Weight weight{table.matrix(), WeightLayout::out_in, nullptr};
    time("cross_entropy", [&] { linear_cross_entropy(c_, x.matrix(), weight, ids, nullptr); });
    const CrossEntropyGradients gradients{1.0f / kTokens, dx.matrix(), dtable.matrix()};
    time("cross_entropy_backward",
         [&] { linear_cross_entropy(c_, x.matrix(), weight, ids, &gradients); });
    const Tensor m = random(kVocabulary, kWidth),
                 v = Tensor::zeros(c_, DType::f32, {kVocabulary, kWidth});
    time("adamw", [&] {
      adamw(c_, table.span<float>(), dtable.span<float>(), m.span<float>(), v.span<float>(),
            {1e-4, 0.9, 0.95, 1e-8, 0.1, 1, 1});
    });
  }

 private:
  Bench& bench_;
  Context& c_;
};

}  // namespace

void bench_operations(Bench& bench) {
  Operations operations(bench);
  operations.linear_layer();
  operations.norms_and_rotation();
  operations.mlp();
  operations.composition();
  operations.ends();
}

}  // namespace dcformer::bench
