#include "dcformer/model/published_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "dcformer/base/check.h"

namespace dcformer {
namespace {

constexpr std::string_view kComposition = ".attention.dyn_w_proj.";
constexpr size_t kMostNamed = 8;

// Where a name's last part begins: "layers.0.attention." of "layers.0.attention.wqkv.weight" for
// the ending "wqkv.weight"; empty where it ends otherwise.
std::string stem_before(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return "";
  return std::string(name.substr(0, name.size() - ending.size()));
}

// Buffers of the published code that stand among the parameters.
bool is_buffer(std::string_view name) {
  if (name.find("cache") != std::string_view::npos) return true;
  return name.ends_with(".sw") || name.ends_with("pre_proj.w") || name.ends_with("post_proj.w") ||
         name.ends_with(".dw_m") || name.ends_with(".qkw_m");
}

// Sums for a correlation.
struct Moments {
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  bool differ = false;

  void add(float a, float b) {
    n += 1;
    x += a;
    y += b;
    xx += double{a} * a;
    yy += double{b} * b;
    xy += double{a} * b;
    if (std::abs(a - b) > 1e-6f * std::max(std::abs(a), std::abs(b))) differ = true;
  }
  /// 0 where one side does not vary.
  double correlation() const {
    const double variance = (xx - x * x / n) * (yy - y * y / n);
    return variance > 0 ? (xy - x * y / n) / std::sqrt(variance) : 0;
  }
};

std::string names_of(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMostNamed);
  const std::string rest =
      names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "";
  return fmt::format("'{}'{}",
                     fmt::join(names.begin(), names.begin() + static_cast<int64_t>(shown), "', '"),
                     rest);
}

}  // namespace

// Columns [begin, begin + width) of the rows of a stored matrix, which are whole rows of the
// parameter, or columns [at, at + width) of all its rows.
struct PublishedWeights::Part {
  std::string name;
  Shape shape;
  int64_t begin = 0;
};

CompositionWeights parse_composition_weights(std::string_view text) {
  if (text == "auto") return CompositionWeights::automatic;
  if (text == "original") return CompositionWeights::original;
  require(text == "merged", "composition weights are '{}', expected auto, original or merged",
          text);
  return CompositionWeights::merged;
}

PublishedWeights::PublishedWeights(const TensorSource& source, const ModelConfig& config,
                                   const std::vector<ParameterSpec>& specs,
                                   CompositionWeights choice)
    : source_(source), config_(config), warnings_(source.warnings()) {
  choose(choice);
  check(specs);
  name_unused(specs);
}

// The tensors that hold the parameter, each with the shape that it must have there.
std::vector<PublishedWeights::Part> PublishedWeights::parts_of(const ParameterSpec& spec) const {
  const int64_t K = config_.composition_sizes().hidden();
  const int64_t M = config_.composition_sizes().group_heads;
  if (merged_) {
    const std::array<std::string, 3> stems = {
        stem_before(spec.name, "dw1"), stem_before(spec.name, "dd"), stem_before(spec.name, "qkw")};
    const Shape rows{config_.dim, 4 * K + 4 * M};
    if (!stems[0].empty()) return {{stems[0] + "dw_m", rows, 0}};
    if (!stems[1].empty()) return {{stems[1] + "dw_m", rows, 4 * K}};
    if (!stems[2].empty()) return {{stems[2] + "qkw_m", {4, K, K}, 0}};
  }
  const std::string stem = stem_before(spec.name, "wqkv.weight");
  if (!stem.empty() && source_.find(spec.name) == nullptr) {
    const int64_t D = config_.head_dim;
    return {{stem + "wq.weight", {config_.n_head * D, config_.dim}, 0},
            {stem + "wk.weight", {config_.n_kv_head * D, config_.dim}, 0},
            {stem + "wv.weight", {config_.n_kv_head * D, config_.dim}, 0}};
  }
  return {{spec.name, spec.shape, 0}};
}

void PublishedWeights::choose(CompositionWeights choice) {
  if (!config_.has_dynamic()) return;
  Moments sample;
  bool has_merged = false;
  bool has_original = false;
  for (int64_t layer = 0; layer < config_.n_layer; ++layer) {
    const std::string stem = fmt::format("layers.{}{}", layer, kComposition);
    const StoredTensor* copy = source_.find(stem + "dw_m");
    const StoredTensor* original = source_.find(stem + "dw1");
    has_merged = has_merged || copy != nullptr;
    has_original = has_original || original != nullptr;
    if (copy == nullptr || original == nullptr) continue;
    const int64_t width = original->shape.numel() / config_.dim;
    if (original->shape.rank() == 0 || original->shape[0] != config_.dim ||
        copy->shape.rank() != 2 || copy->shape[0] != config_.dim || copy->shape[1] < width ||
        width == 0)
      continue;
    // Up to 4096 elements of whole rows, spread over all of them.
    const int64_t n_row = std::clamp<int64_t>(4096 / width, 1, config_.dim);
    std::vector<float> a(static_cast<size_t>(width));
    std::vector<float> b(static_cast<size_t>(width));
    for (int64_t i = 0; i < n_row; ++i) {
      const int64_t row = i * config_.dim / n_row;
      source_.read(copy->name, row * copy->shape[1], std::span(a));
      source_.read(original->name, row * width, std::span(b));
      for (size_t j = 0; j < a.size(); ++j) sample.add(a[j], b[j]);
    }
  }
  require(choice != CompositionWeights::merged || has_merged,
          "{}: has no merged composition weights ('dw_m', 'qkw_m')", source_.where());
  if (!has_merged) return;
  if (config_.n_group != 1) {
    require(choice != CompositionWeights::merged,
            "{}: merged composition weights are of one group, the configuration has {}",
            source_.where(), config_.n_group);
    return;
  }
  const double correlation = sample.n > 0 ? sample.correlation() : 0;
  const bool trained = !has_original || (sample.differ && correlation > 0.3);
  merged_ =
      choice == CompositionWeights::merged || (choice == CompositionWeights::automatic && trained);
  if (!sample.differ) return;
  const char* reason = choice != CompositionWeights::automatic ? "as asked for"
                       : trained ? "which training has moved away from the originals"
                                 : "which the copies have nothing to do with";
  warnings_.push_back(
      fmt::format("{}: composition weights are there as originals and as merged copies that differ "
                  "(correlation "
                  "{:.2f}): the {} are taken, {}; --composition-weights chooses",
                  source_.where(), correlation, merged_ ? "copies" : "originals", reason));
}

void PublishedWeights::check(const std::vector<ParameterSpec>& specs) {
  std::vector<std::string> missing;
  for (const ParameterSpec& spec : specs) {
    bool whole = true;
    for (const Part& part : parts_of(spec)) {
      const StoredTensor* stored = source_.find(part.name);
      if (stored == nullptr) {
        whole = false;
        continue;
      }
      require(stored->shape == part.shape, "{}: tensor '{}' has shape {}, expected {}",
              stored->file, part.name, to_string(stored->shape), to_string(part.shape));
      const bool number = stored->dtype == DType::f32 || stored->dtype == DType::bf16 ||
                          stored->dtype == DType::f16 || stored->dtype == DType::f64;
      require(number, "{}: tensor '{}' is {}, expected f32, bf16, f16 or f64", stored->file,
              part.name, name_of(stored->dtype));
    }
    if (!whole) missing.push_back(spec.name);
  }
  require(missing.empty(), "{}: {} {} missing: {}", source_.where(), missing.size(),
          missing.size() == 1 ? "tensor is" : "tensors are", names_of(missing));
}

void PublishedWeights::name_unused(const std::vector<ParameterSpec>& specs) {
  std::unordered_set<std::string> used;
  for (const ParameterSpec& spec : specs)
    for (const Part& part : parts_of(spec)) used.insert(part.name);
  std::vector<std::string> unused;
  for (const StoredTensor& tensor : source_.tensors()) {
    const bool original = merged_ && tensor.name.find(kComposition) != std::string::npos;
    if (!used.contains(tensor.name) && !is_buffer(tensor.name) && !original)
      unused.push_back(tensor.name);
  }
  if (unused.empty()) return;
  warnings_.push_back(
      fmt::format("{}: {} of no use to this configuration: {}", source_.where(),
                  unused.size() == 1 ? "1 tensor is" : fmt::format("{} tensors are", unused.size()),
                  names_of(unused)));
}

Tensor PublishedWeights::value(Context& context, const ParameterSpec& spec) const {
  const std::vector<Part> parts = parts_of(spec);
  const bool whole = parts.size() == 1 && parts[0].shape == spec.shape;
  if (whole) {
    const Tensor mapped = source_.mapped(parts[0].name);
    if (mapped.defined() && mapped.dtype() != DType::f64) return mapped;
  }
  const bool half = std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
    return source_.at(part.name).dtype == DType::bf16;
  });
  const Tensor to = Tensor::empty(context, half ? DType::bf16 : DType::f32, spec.shape);
  auto* bytes = static_cast<std::byte*>(to.matrix().data);
  const auto size = static_cast<int64_t>(size_of(to.dtype()));
  const auto target = [&](int64_t at, int64_t n) {
    return ElementTarget(to.dtype(), bytes + at * size, n);
  };
  // dw1 and dd are columns of the merged rows; all else is one tensor after the other.
  const bool columns = merged_ && parts[0].shape.rank() == 2 && parts[0].name.ends_with("dw_m");
  if (columns) {
    const int64_t width = spec.shape.numel() / config_.dim;
    for (int64_t row = 0; row < config_.dim; ++row)
      source_.read(parts[0].name, row * parts[0].shape[1] + parts[0].begin,
                   target(row * width, width));
    return to;
  }
  int64_t at = 0;
  for (const Part& part : parts) {
    source_.read(part.name, 0, target(at, part.shape.numel()));
    at += part.shape.numel();
  }
  return to;
}

}  // namespace dcformer
