#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "benchmarks/bench.h"
#include "dcformer/base/file.h"

namespace dcformer::bench {
namespace {

const std::map<std::string, void (*)(Bench&)>& groups() {
  static const std::map<std::string, void (*)(Bench&)> all = {{"attention", bench_attention},
                                                              {"memory", bench_memory},
                                                              {"operations", bench_operations},
                                                              {"tokenizer", bench_tokenizer},
                                                              {"train", bench_train}};
  return all;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

void run(const std::string& group, const std::string& output) {
  Context context;
  Bench bench(context);
  for (const auto& [name, body] : groups())
    if (group.empty() || group == name) body(bench);
  MemoryReader reader(context);
  const double read_bandwidth = reader.bytes() / bench.median(5, [&] { reader.read(); });
  nlohmann::ordered_json json;
  json["machine"] = {{"cpu", processor_name()},
                     {"threads", context.n_thread()},
                     {"gemm_f32", bench.peak(DType::f32) * 1e-9},
                     {"gemm_bf16", bench.peak(DType::bf16) * 1e-9},
                     {"read_bandwidth", read_bandwidth * 1e-9},
                     {"l3_bytes", last_level_cache()}};
  json["figures"] = nlohmann::ordered_json::array();
  fmt::print(
      "{}, {} threads; products: {:.0f} GFLOP/s f32, {:.0f} bf16 (the larger of both types); read "
      "{:.1f} GB/s\n\n",
      processor_name(), context.n_thread(), bench.peak(DType::f32) * 1e-9,
      bench.peak(DType::bf16) * 1e-9, read_bandwidth * 1e-9);
  fmt::print("{:<42} {:>9} {:<8} {:<8} {}\n", "figure", "value", "unit", "must", "what");
  for (const Figure& f : bench.figures()) {
    json["figures"].push_back({{"name", f.name},
                               {"value", f.value},
                               {"unit", f.unit},
                               {"limit", f.limit},
                               {"what", f.what}});
    fmt::print("{:<42} {:>9.3f} {:<8} {:<8} {}\n", f.name, f.value, f.unit, f.limit, f.what);
  }
  replace_file(output, json.dump(1) + "\n");
}

}  // namespace
}  // namespace dcformer::bench

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_logger_st("bench"));
  if (argc == 2 && std::string(argv[1]) == dcformer::bench::kMeasureMemory) {
    fmt::print("{:.0f}\n", dcformer::bench::train_405m_and_measure());
    return 0;
  }
  CLI::App app{"Measures speed; every ratio is of two times of this run."};
  std::string group;
  std::string output;
  app.add_option("group", group, "The group to run (default: all)")
      ->check(CLI::IsMember(dcformer::bench::groups()));
  app.add_option("--output", output, "JSON file for the figures")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
  try {
    dcformer::bench::run(group, output);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
  return 0;
}
