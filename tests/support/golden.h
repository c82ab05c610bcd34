#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dcformer::test {

/// Tensors of a file by name, whatever their type, as doubles.
using Tensors = std::map<std::string, std::vector<double>>;

/// Reads all tensors of a safetensors file.
Tensors read_tensors(const std::string& path);

/// Values that are whole numbers as ids.
std::vector<int32_t> to_ids(const std::vector<double>& values);

/// The path of a golden model's folder, or of a file in it: golden_path("training/gqa").
std::string golden_path(const std::string& name);

/// A golden model's name as the name of a test: "-" and "/" become "_".
std::string test_name(std::string name);

/// The golden models under `training/`, and the others with the number of tokens that the published
/// decoder prefilled (tests/golden/README.md).
const std::vector<std::string>& golden_training_names();
struct GoldenPrefill {
  std::string name;
  int64_t prefill = 0;
  /// Bound of max|error| relative to max|logit|.
  double tolerance = 1e-4;
};
const std::vector<GoldenPrefill>& golden_prefills();

}  // namespace dcformer::test
