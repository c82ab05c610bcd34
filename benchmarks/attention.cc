#include <fmt/format.h>

#include <algorithm>

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
  AttentionProblem(const AttentionProblem&) = delete;

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

/// The sizes of a problem; T is 2048 unless said.
struct Size {
  int64_t heads, head_dim;
};
constexpr Size kMain{32, 80};
constexpr int64_t kTokens = 2048;

/// Seconds at the peak of one product over the visible pairs of a causal sequence.
double product_seconds(Bench& bench, DType dtype, Size size, int64_t tokens) {
  const double pairs = static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2;
  return 2.0 * static_cast<double>(size.heads * size.head_dim) * pairs / bench.peak(dtype);
}

// "<= 2.6", or nothing where a size has no limit, or where bf16 products are less than 1.5 times as
// fast as those of f32.
std::string limit(Bench& bench, bool has_limit, DType dtype, double f32, double bf16) {
  if (!has_limit) return "";
  if (dtype == DType::f32) return fmt::format("<= {}", f32);
  const bool counts = bench.peak(DType::bf16) >= 1.5 * bench.peak(DType::f32);
  return counts ? fmt::format("<= {}", bf16) : "";
}

// Both passes at T 2048, composed and plain in turn. Figures of the main size are
// attention.NAME.TYPE and have limits; those of others are attention.hH_dD.NAME.TYPE.
void bench_passes(Bench& bench, DType dtype, Size size) {
  const bool main = size.heads == kMain.heads && size.head_dim == kMain.head_dim;
  const std::string prefix =
      main ? "attention." : fmt::format("attention.h{}_d{}.", size.heads, size.head_dim);
  const std::string sizes = fmt::format("(H {}, D {}, T {})", size.heads, size.head_dim, kTokens);
  AttentionProblem composed(bench.context(), dtype, kTokens, size.heads, size.head_dim, 0, true);
  AttentionProblem plain(bench.context(), dtype, kTokens, size.heads, size.head_dim, 0, false);
  const auto seconds =
      bench.alternate(5, {[&] { composed.forward(); }, [&] { plain.forward(); },
                          [&] { composed.backward(); }, [&] { plain.backward(); }});
  const double product = product_seconds(bench, dtype, size, kTokens);
  const auto add = [&](const char* name, double value, double f32, double bf16, const char* what) {
    bench.add({prefix + name + "." + std::string(name_of(dtype)), value, "1",
               limit(bench, main, dtype, f32, bf16), std::string(what) + " " + sizes});
  };
  add("forward_over_peak", seconds[0] / (2 * product), 2.6, 3.8,
      "composed forward / its two products at the peak");
  add("backward_over_peak", seconds[2] / (5 * product), 3.2, 5.0,
      "composed backward / its five products at the peak");
  add("forward_over_plain", seconds[0] / seconds[1], 1.45, 1.45, "composed / plain forward");
  add("backward_over_plain", seconds[2] / seconds[3], 1.8, 1.8, "composed / plain backward");
  add("plain_forward_over_peak", seconds[1] / (2 * product), 1.9, 2.7,
      "plain forward / its two products at the peak");
}

// T 8192: global against the peak, and windows against global.
void bench_long(Bench& bench, DType dtype) {
  constexpr int64_t kLong = 8192;
  const auto problem = [&](int64_t window) {
    return AttentionProblem(bench.context(), dtype, kLong, kMain.heads, kMain.head_dim, window,
                            true);
  };
  AttentionProblem global = problem(0);
  AttentionProblem window = problem(256);
  AttentionProblem wide = problem(1024);
  const auto seconds = bench.alternate(
      3, {[&] { global.forward(); }, [&] { window.forward(); }, [&] { wide.forward(); }});
  const std::string type(name_of(dtype));
  bench.add({"attention.forward_over_peak_8192." + type,
             seconds[0] / (2 * product_seconds(bench, dtype, kMain, kLong)), "1",
             limit(bench, true, dtype, 3.4, 4.8),
             "composed forward / its two products at the peak (H 32, D 80, T 8192)"});
  const bool f32 = dtype == DType::f32;
  bench.add({f32 ? "attention.window_share" : "attention.window_share." + type,
             seconds[1] / seconds[0], "1", f32 ? "<= 0.125" : "",
             "forward, T 8192: window 256 / global"});
  bench.add({"attention.window_1024_share." + type, seconds[2] / seconds[0], "1", "",
             "forward, T 8192: window 1024 / global"});
}

/// One new query for each sequence of a batch against its bf16 cache of 4096 tokens; as many copies
/// of the caches as make four times the last-level cache, one after the other.
class DecodeProblem {
 public:
  DecodeProblem(Context& context, int64_t batch)
      : context_(context),
        batch_(batch),
        layout_{DType::bf16, kMain.heads, kMain.head_dim, 1, (2 * kRank + 1) * kMain.heads},
        n_copy_(4 * last_level_cache() / static_cast<int64_t>(bytes()) + 1),
        q_(random_tensor(context, DType::bf16, {batch, kMain.heads * kMain.head_dim})),
        o_(Tensor::empty(context, DType::bf16, {batch, kMain.heads * kMain.head_dim})),
        weights_(random_tensor(context, DType::f32, {batch, 2 * layout_.block})),
        caches_(Tensor::empty(context, DType::bf16, {n_copy_ * batch * kPages * layout_.numel()})) {
    std::fill_n(caches_.data<BFloat16>(), caches_.numel(), BFloat16(0.01f));
    for (int64_t p = 0; p < n_copy_ * batch * kPages; ++p)
      pages_.push_back(caches_.data<BFloat16>() + p * layout_.numel());
    for (int64_t s = 0; s < batch; ++s) sequences_.push_back({s, 1, 0, kContext, kContext - 1});
    inputs_.q = q_.heads(kMain.heads);
    inputs_.sequences = sequences_;
    Composition& c = inputs_.composition;
    c.rank = kRank;
    c.pre = c.post = c.gates = true;
    c.query = {weights_.data<float>(), 2 * layout_.block, 2 * layout_.block, layout_.block};
    c.key = c.query;
  }

  /// Bytes of the caches that a step reads.
  double bytes() const { return 2.0 * static_cast<double>(batch_ * kPages * layout_.numel()); }
  void step() {
    std::vector<std::span<void* const>> tables;
    for (int64_t s = 0; s < batch_; ++s)
      tables.emplace_back(pages_.data() + (next_ * batch_ + s) * kPages, kPages);
    composed_attention_paged(context_, inputs_, layout_, tables, o_.heads(kMain.heads));
    next_ = (next_ + 1) % n_copy_;
  }

 private:
  static constexpr int64_t kContext = 4096;
  static constexpr int64_t kPages = kContext / kPanel;
  static constexpr int64_t kRank = 2;
  Context& context_;
  int64_t batch_;
  PageLayout layout_;
  int64_t n_copy_;
  Tensor q_, o_, weights_, caches_;
  std::vector<void*> pages_;
  std::vector<AttentionSequence> sequences_;
  AttentionInputs inputs_;
  int64_t next_ = 0;
};

// The share of the read bandwidth at which one step takes in its caches.
void bench_decode(Bench& bench) {
  MemoryReader reader(bench.context());
  double least = 0;
  for (const int64_t batch : {1, 8}) {
    DecodeProblem problem(bench.context(), batch);
    const auto seconds = bench.alternate(21, {[&] { problem.step(); }, [&] { reader.read(); }});
    const double share = problem.bytes() / seconds[0] / (reader.bytes() / seconds[1]);
    bench.add({fmt::format("attention.decode_bandwidth.batch{}", batch), share, "1", "",
               fmt::format("bytes of cache / time / read bandwidth, batch {}", batch)});
    least = batch == 1 ? share : std::min(least, share);
  }
  bench.add({"attention.decode_bandwidth", least, "1", ">= 0.75",
             "the worse of both (H 32, D 80, context 4096, bf16)"});
}

}  // namespace

void bench_attention(Bench& bench) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Size size : {kMain, Size{16, 64}, Size{32, 128}}) bench_passes(bench, dtype, size);
    bench_long(bench, dtype);
  }
  bench_decode(bench);
}

}  // namespace dcformer::bench
