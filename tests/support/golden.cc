#include "tests/support/golden.h"

#include "dcformer/base/check.h"
#include "dcformer/io/safetensors.h"
#include "tests/support/compare.h"

namespace dcformer::test {
namespace {

std::vector<double> values_of(const Tensor& tensor, const std::string& name) {
  switch (tensor.dtype()) {
    case DType::f64:
      return to_doubles(tensor.span<double>());
    case DType::f32:
      return to_doubles(tensor.span<float>());
    case DType::bf16:
      return to_doubles(tensor.span<BFloat16>());
    case DType::f16:
      return to_doubles(tensor.span<Float16>());
    case DType::i64:
      return to_doubles(tensor.span<int64_t>());
    case DType::i32:
      return to_doubles(tensor.span<int32_t>());
    case DType::i16:
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      break;
  }
  fail("tensor {} has type {}, which no golden file uses", name, name_of(tensor.dtype()));
}

}  // namespace

Tensors read_tensors(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  Tensors tensors;
  for (const SafetensorsFile::Entry& entry : file.entries())
    tensors[entry.name] = values_of(file.tensor(entry), entry.name);
  return tensors;
}

std::vector<int32_t> to_ids(const std::vector<double>& values) {
  std::vector<int32_t> ids;
  for (double value : values) ids.push_back(static_cast<int32_t>(value));
  return ids;
}

std::string golden_path(const std::string& name) { return std::string(DCFORMER_GOLDEN "/") + name; }

std::string test_name(std::string name) {
  for (char& c : name)
    if (c == '-' || c == '/') c = '_';
  return name;
}

const std::vector<std::string>& golden_training_names() {
  static const std::vector<std::string> names{"base-projection", "dcformer",   "gqa",
                                              "mgate",           "plain",      "post-only",
                                              "pre-only",        "query-wise", "two-groups"};
  return names;
}

const std::vector<GoldenPrefill>& golden_prefills() {
  static const std::vector<GoldenPrefill> prefills{{"dcformer-window", 12, 1e-4},
                                                   {"dcformer-no-qk-norm", 12, 1e-4},
                                                   {"dcformer-mgate", 12, 1e-4},
                                                   {"dcformer-six-heads", 7, 1e-4},
                                                   {"dcformer-lgll", 300, 1e-3}};
  return prefills;
}

}  // namespace dcformer::test
