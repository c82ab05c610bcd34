#include <fmt/format.h>
#include <sys/resource.h>
#include "dcformer/base/check.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "benchmarks/bench.h"
#include "benchmarks/train_step.h"

namespace dcformer::bench {
namespace {

constexpr int64_t kLayers = 24;

/// The largest resident size of this process so far, in bytes.
double peak_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace

double train_405m_and_measure() {
  Context context;
  TrainStep step(context, model_of_405m(kLayers), DType::bf16, true);
  for (int i = 0; i < 2; ++i) step.run();
  return peak_resident();
}

// In a process of its own: what other groups have used would count too.
void bench_memory(Bench& bench) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::unique_ptr<FILE, int (*)(FILE*)> child(
      popen(fmt::format("'{}' {}", self, kMeasureMemory).c_str(), "r"), pclose);
  double bytes = 0;
  require(child != nullptr && std::fscanf(child.get(), "%lf", &bytes) == 1,
          "memory: the process that trains has ended without a result");
  bench.add({"memory.train_405m.bf16", bytes / (1 << 30), "GiB", "<= 10",
             "largest resident size: two updates of the whole 405M model, 2048 tokens, bf16, "
             "activation checkpointing"});
}

}  // namespace dcformer::bench
