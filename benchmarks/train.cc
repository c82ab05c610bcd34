#include <fmt/format.h>

#include "benchmarks/bench.h"
#include "benchmarks/train_step.h"

namespace dcformer::bench {
namespace {

constexpr int64_t kLayers = 6;

/// 2·T·(parameters of the matrix products, composition not) + 4·H·D·(visible pairs), three times
/// for training.
double model_flops(const ModelConfig& c) {
  double parameters = 0;
  for (const ParameterSpec& spec : parameter_specs(c))
    if (spec.product_operand && spec.group != "composition")
      parameters += static_cast<double>(spec.shape.numel());
  double pairs = 0;
  for (int64_t layer = 0; layer < c.n_layer; ++layer)
    for (int64_t i = 0; i < kStepTokens; ++i) {
      const int64_t window = c.window(layer);
      pairs += static_cast<double>(window == 0 ? i + 1 : std::min(i + 1, window));
    }
  const auto width = static_cast<double>(c.n_head * c.head_dim);
  return 3 * (2 * static_cast<double>(kStepTokens) * parameters + 4 * width * pairs);
}

}  // namespace

void bench_train(Bench& bench) {
  const double flops = model_flops(model_of_405m(kLayers));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    bench.note_peak(dtype, 2048, 2048, 2048);
    bench.note_peak(dtype, kStepTokens, 2816, 1024);
    bench.note_peak(dtype, 512, 50257, 1024);
    double seconds = 0;
    {
      TrainStep step(bench.context(), model_of_405m(kLayers), dtype, false);
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
