#include <fmt/format.h>

#include <cmath>

#include "benchmarks/bench.h"
#include "dcformer/base/random.h"
#include "dcformer/model/language_model.h"
#include "dcformer/ops/adamw.h"

namespace dcformer::bench {
namespace {

constexpr int64_t kTokens = 2048;

// Six layers of the published 405M model.
ModelConfig model_of_405m() {
  ModelConfig c;
  c.dim = 1024;
  c.n_layer = 6;
  c.n_head = c.n_kv_head = 16;
  c.head_dim = 64;
  c.intermediate_size = 2816;
  c.vocab_size = 50257;
  c.block_size = kTokens;
  c.use_qk_norm = true;
  c.rope_base = 10000;
  c.windows = {256, 0};
  return c;
}

/// 2·T·(parameters of the matrix products, composition not) + 4·H·D·(visible pairs), three times
/// for training.
double model_flops(const ModelConfig& c) {
  double parameters = 0;
  for (const ParameterSpec& spec : parameter_specs(c))
    if (spec.product_operand && spec.group != "composition")
      parameters += static_cast<double>(spec.shape.numel());
  double pairs = 0;
  for (int64_t layer = 0; layer < c.n_layer; ++layer)
    for (int64_t i = 0; i < kTokens; ++i) {
      const int64_t window = c.window(layer);
      pairs += static_cast<double>(window == 0 ? i + 1 : std::min(i + 1, window));
    }
  const auto width = static_cast<double>(c.n_head * c.head_dim);
  return 3 * (2 * static_cast<double>(kTokens) * parameters + 4 * width * pairs);
}

/// One update: forward, backward, clipping, AdamW, the bf16 copies.
class Step {
 public:
  Step(Context& context, DType dtype)
      : context_(context),
        config_(model_of_405m()),
        model_(config_, Parameters::for_training(context, parameter_specs(config_), dtype)) {
    model_.parameters().initialise(context, 1);
    const Shape& shape = model_.parameters().values().shape();
    first_ = Tensor::zeros(context, DType::f32, shape);
    second_ = Tensor::zeros(context, DType::f32, shape);
    const Random random(2, "ids");
    for (int64_t i = 0; i < kTokens; ++i) {
      ids_.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(i), 50257)));
      targets_.push_back(
          static_cast<int32_t>(random.below(static_cast<uint64_t>(i + kTokens), 50257)));
    }
    batch_.append(kTokens);
  }

  void run() {
    Parameters& p = model_.parameters();
    p.zero_gradients(context_);
    model_.loss_and_gradients(context_, ids_, targets_, batch_, {.scale = 1.0f / kTokens});
    const double norm = std::sqrt(sum_of_squares(context_, p.gradients().span<float>()));
    AdamWStep step;
    step.learning_rate = 1e-4;
    step.weight_decay = 0.1;
    step.number = ++number_;
    step.gradient_scale = norm > 1 ? 1 / norm : 1;
    adamw(context_, p.values().span<float>(), p.gradients().span<float>(), first_.span<float>(),
          second_.span<float>(), step);
    p.refresh(context_);
  }

 private:
  Context& context_;
  ModelConfig config_;
  LanguageModel model_;
  Tensor first_, second_;
  std::vector<int32_t> ids_, targets_;
  SequenceBatch batch_;
  int64_t number_ = 0;
};

}  // namespace

void bench_train(Bench& bench) {
  const double flops = model_flops(model_of_405m());
  for (const DType dtype : {DType::f32, DType::bf16}) {
    bench.note_peak(dtype, 2048, 2048, 2048);
    bench.note_peak(dtype, kTokens, 2816, 1024);
    bench.note_peak(dtype, 512, 50257, 1024);
    double seconds = 0;
    {
      Step step(bench.context(), dtype);
      seconds = bench.median(3, [&] { step.run(); });
    }
    bench.context().allocator().trim();
    bench.add(
        {fmt::format("train.step_over_peak.{}", name_of(dtype)),
         flops / (seconds * bench.peak(dtype)), "1", ">= 0.25",
         "model FLOPs of a step / (its time · peak): 6 layers of the 405M shape, 2048 tokens"});
    bench.add({fmt::format("train.step_seconds.{}", name_of(dtype)), seconds, "s", "",
               "the same step's time"});
  }
}

}  // namespace dcformer::bench
