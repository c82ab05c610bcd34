#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dcformer/tensor/tensor.h"

namespace dcformer::bench {

/// One line of the table and of bench.json.
struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  /// What it must reach: "" (nothing), "<= 1.45" or ">= 0.25".
  std::string limit;
  std::string what;
};

/// What a group of benchmarks works with.
class Bench {
 public:
  explicit Bench(Context& context) : context_(context) {}

  Context& context() { return context_; }

  /// Seconds of each body, run in turn `rounds` times after one warm-up each; the medians.
  std::vector<double> alternate(int rounds, const std::vector<std::function<void()>>& bodies);
  double median(int rounds, const std::function<void()>& body) {
    return alternate(rounds, {body})[0];
  }

  /// The best rate in FLOP/s of products so far: 2048³, and what `note_peak` was told of. For bf16
  /// the larger of both.
  double peak(DType dtype);
  /// Measures a benchmark's own large product [m,k]·[n,k]ᵀ as a candidate for the peak.
  void note_peak(DType dtype, int64_t m, int64_t n, int64_t k);

  void add(Figure figure) { figures_.push_back(std::move(figure)); }
  const std::vector<Figure>& figures() const { return figures_; }

 private:
  double product_rate(DType dtype, int64_t m, int64_t n, int64_t k);

  Context& context_;
  std::vector<Figure> figures_;
  double f32_peak_ = 0;
  double bf16_peak_ = 0;
};

/// Memory of four times the last-level cache, to measure how fast all threads together read it.
class MemoryReader {
 public:
  explicit MemoryReader(Context& context);
  void read();
  double bytes() const { return 4.0 * static_cast<double>(memory_.numel()); }

 private:
  Context& context_;
  Tensor memory_;
  std::vector<float> sums_;
};
/// Bytes of the last-level cache; 32 MiB where the system does not say.
int64_t last_level_cache();

/// A tensor of normal values of standard deviation 1.
Tensor random_tensor(Context& context, DType dtype, const Shape& shape);

/// The argument with which the program runs train_405m_and_measure() alone and prints its result.
constexpr const char* kMeasureMemory = "--measure-memory";
/// Two updates of the whole 405M model; the largest resident size of this process, in bytes.
double train_405m_and_measure();

// The groups.
void bench_memory(Bench& bench);
void bench_train(Bench& bench);
void bench_attention(Bench& bench);
void bench_operations(Bench& bench);
void bench_tokenizer(Bench& bench);

}  // namespace dcformer::bench
