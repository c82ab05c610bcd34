#include "benchmarks/bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "dcformer/base/parallel.h"
#include "dcformer/base/random.h"
#include "dcformer/ops/convert.h"
#include "dcformer/ops/gemm.h"

namespace dcformer::bench {
namespace {

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::vector<double> Bench::alternate(int rounds, const std::vector<std::function<void()>>& bodies) {
  for (const auto& body : bodies) body();
  std::vector<std::vector<double>> seconds(bodies.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < bodies.size(); ++i) seconds[i].push_back(seconds_of(bodies[i]));
  std::vector<double> medians;
  for (auto& s : seconds) medians.push_back(middle(std::move(s)));
  return medians;
}

double Bench::product_rate(DType dtype, int64_t m, int64_t n, int64_t k) {
  const Tensor a = random_tensor(context_, dtype, {m, k});
  const Tensor b = random_tensor(context_, dtype, {n, k});
  const Tensor c = Tensor::empty(context_, DType::f32, {m, n});
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    const double s = seconds_of([&] {
      gemm(context_, Gemm{a.matrix(), false, b.matrix(), true, c.matrix(), false});
    });
    best = std::max(
        best, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / s);
  }
  return best;
}

void Bench::note_peak(DType dtype, int64_t m, int64_t n, int64_t k) {
  double& peak = dtype == DType::bf16 ? bf16_peak_ : f32_peak_;
  peak = std::max(peak, product_rate(dtype, m, n, k));
}

double Bench::peak(DType dtype) {
  if (f32_peak_ == 0) note_peak(DType::f32, 2048, 2048, 2048);
  if (bf16_peak_ == 0) note_peak(DType::bf16, 2048, 2048, 2048);
  return dtype == DType::bf16 ? std::max(f32_peak_, bf16_peak_) : f32_peak_;
}

namespace {

constexpr int64_t kPieceFloats = int64_t{1} << 18;

}  // namespace

int64_t last_level_cache() {
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

MemoryReader::MemoryReader(Context& context)
    : context_(context),
      memory_(
          Tensor::empty(context, DType::f32,
                        {(last_level_cache() + kPieceFloats - 1) / kPieceFloats * kPieceFloats})),
      sums_(static_cast<size_t>(memory_.numel() / kPieceFloats)) {
  std::fill_n(memory_.data<float>(), memory_.numel(), 1.0f);
}

void MemoryReader::read() {
  parallel_chunks(context_, memory_.numel(), kPieceFloats, [&](int64_t begin, int64_t end) {
    float sum[16] = {};
    const float* data = memory_.data<float>();
    for (int64_t i = begin; i < end; i += 16)
      for (int64_t j = 0; j < 16; ++j) sum[j] += data[i + j];
    for (const float s : sum) sums_[static_cast<size_t>(begin / kPieceFloats)] += s;
  });
}

Tensor random_tensor(Context& context, DType dtype, const Shape& shape) {
  const Tensor values = Tensor::empty(context, DType::f32, shape);
  const std::span<float> all = values.span<float>();
  const Random random(1, "benchmark");
  parallel_chunks(context, values.numel(), 65536, [&](int64_t begin, int64_t end) {
    random.fill_normal(all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), 1,
                       static_cast<uint64_t>(begin));
  });
  if (dtype == DType::f32) return values;
  const Tensor rounded = Tensor::empty(context, dtype, shape);
  convert(context, values.matrix(), rounded.matrix());
  return rounded;
}

}  // namespace dcformer::bench
