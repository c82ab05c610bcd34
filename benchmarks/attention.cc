#include <fmt/format.h>

#include "benchmarks/bench.h"
#include "dcformer/ops/composed_attention.h"

namespace dcformer::bench {
namespace {

/// Batch 1, causal, rank 2, both stages and sides, or plain.
class AttentionProblem {
 public:
  AttentionProblem(Context& context, DType dtype, int64_t tokens, int64_t heads, int64_t head_dim,
                   int64_t window, bool composed)
      : context_(context),
        heads_(heads),
        q_(random_tensor(context, dtype, {tokens, heads * head_dim})),
        k_(random_tensor(context, dtype, {tokens, heads * head_dim})),
        v_(random_tensor(context, dtype, {tokens, heads * head_dim})),
        o_(Tensor::empty(context, dtype, {tokens, heads * head_dim})),
        d_out_(random_tensor(context, DType::f32, {tokens, heads * head_dim})),
        dq_(Tensor::empty(context, DType::f32, {tokens, heads * head_dim})),
        dk_(Tensor::empty(context, DType::f32, {tokens, heads * head_dim})),
        dv_(Tensor::empty(context, DType::f32, {tokens, heads * head_dim})),
        statistics_(Tensor::empty(context, DType::f32, {tokens, heads, 2})),
        sequence_{0, tokens, 0, tokens, 0} {
    inputs_.q = q_.heads(heads);
    inputs_.k = k_.heads(heads);
    inputs_.v = v_.heads(heads);
    if (window > 0) inputs_.mask.window = window;
    inputs_.sequences = {&sequence_, 1};
    if (!composed) return;
    constexpr int64_t kRank = 2;
    const int64_t block = (2 * kRank + 1) * heads;
    weights_ = random_tensor(context, DType::f32, {tokens, 4 * block});
    for (float& w : weights_.span<float>()) w *= 0.1f;
    dweights_ = Tensor::empty(context, DType::f32, {tokens, 4 * block});
    Composition& c = inputs_.composition;
    c.rank = kRank;
    c.pre = c.post = c.gates = true;
    c.query = {weights_.data<float>(), 4 * block, 4 * block, 2 * block};
    c.key = {weights_.data<float>() + block, 4 * block, 4 * block, 2 * block};
    gradients_.dquery = dweights_.data<float>();
    gradients_.dkey = dweights_.data<float>() + block;
  }

  void forward() {
    composed_attention(context_, inputs_, o_.heads(heads_), statistics_.data<float>());
  }
  void backward() {
    gradients_.dq = dq_.heads(heads_).typed<float>();
    gradients_.dk = dk_.heads(heads_).typed<float>();
    gradients_.dv = dv_.heads(heads_).typed<float>();
    composed_attention_backward(context_, inputs_, statistics_.data<float>(),
                                d_out_.heads(heads_).typed<float>(), gradients_);
  }

 private:
  Context& context_;
  int64_t heads_;
  Tensor q_, k_, v_, o_, d_out_, dq_, dk_, dv_, statistics_, weights_, dweights_;
  AttentionSequence sequence_;
  AttentionInputs inputs_;
  AttentionGradients gradients_;
};

constexpr int64_t kHeads = 32;
constexpr int64_t kHeadDim = 80;

/// FLOPs of one product over the visible pairs of a causal sequence.
double product_flops(int64_t tokens) {
  return 2.0 * kHeads * kHeadDim * static_cast<double>(tokens) * static_cast<double>(tokens + 1) /
         2;
}

}  // namespace

void bench_attention(Bench& bench) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string type(name_of(dtype));
    AttentionProblem composed(bench.context(), dtype, 2048, kHeads, kHeadDim, 0, true);
    AttentionProblem plain(bench.context(), dtype, 2048, kHeads, kHeadDim, 0, false);
    const auto seconds =
        bench.alternate(3, {[&] { composed.forward(); }, [&] { plain.forward(); },
                            [&] { composed.backward(); }, [&] { plain.backward(); }});
    const double product = product_flops(2048) / bench.peak(dtype);
    bench.add({"attention.forward_over_peak." + type, seconds[0] / (2 * product), "1", "",
               "composed forward / its two products at the peak (H 32, D 80, T 2048)"});
    bench.add({"attention.backward_over_peak." + type, seconds[2] / (5 * product), "1", "",
               "composed backward / its five products at the peak"});
    bench.add({"attention.forward_over_plain." + type, seconds[0] / seconds[1], "1", "",
               "composed / plain forward"});
    bench.add({"attention.backward_over_plain." + type, seconds[2] / seconds[3], "1", "",
               "composed / plain backward"});
    bench.add({"attention.plain_forward_over_peak." + type, seconds[1] / (2 * product), "1", "",
               "plain forward / its two products at the peak"});
  }
  AttentionProblem window(bench.context(), DType::f32, 8192, 8, 64, 256, true);
  AttentionProblem global(bench.context(), DType::f32, 8192, 8, 64, 0, true);
  const auto seconds = bench.alternate(3, {[&] { window.forward(); }, [&] { global.forward(); }});
  bench.add({"attention.window_share", seconds[0] / seconds[1], "1", "",
             "forward, T 8192: window 256 / global (H 8, D 64)"});
}

}  // namespace dcformer::bench
