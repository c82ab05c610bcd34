#include "dcformer/model/maxtext.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "dcformer/base/check.h"
#include "dcformer/io/zarr_source.h"
#include "dcformer/model/parameters.h"

namespace dcformer {
namespace {

constexpr size_t kNamesInMessages = 5;
// Rows that are transposed at once, so that reads go along cache lines.
constexpr int64_t kRows = 16;

/// A run of a parameter's elements, from one leaf.
struct Part {
  std::string leaf;
  /// The index on axis 1; below 0: the leaf is not stacked.
  int64_t block = -1;
  /// Of the leaf without the stacked axis.
  Shape shape;
  /// The leaf is [columns, …], to be transposed; 0: taken as it is.
  int64_t columns = 0;
  /// How many of the parameter's elements it gives.
  int64_t n = 0;
};

/// Where the leaves of a checkpoint lie and how its layers are stacked.
struct Layout {
  std::string root;  // "params."
  int64_t block_size = 1;
};

std::string layer_norm_leaf(const Layout& layout, int64_t module) {
  return fmt::format("{}decoder.layers.pre_self_attention_layer_norm_{}.scale", layout.root,
                     module);
}

Layout find_layout(const TensorSource& leaves, const ModelConfig& config) {
  Layout layout;
  // A state that holds parameters alone may have them one level deeper.
  layout.root = leaves.find("params.params.token_embedder.embedding") != nullptr ? "params.params."
                                                                                 : "params.";
  layout.block_size = 0;
  int64_t n_layer = 0;
  while (const StoredTensor* norm = leaves.find(layer_norm_leaf(layout, layout.block_size))) {
    require(norm->shape.rank() == 2, "{}: shape {}, expected [{},blocks of layers]", norm->file,
            to_string(norm->shape), config.dim);
    n_layer += norm->shape[1];
    ++layout.block_size;
  }
  require(layout.block_size > 0 || config.n_layer == 0, "{}: leaf '{}' is missing", leaves.where(),
          layer_norm_leaf(layout, 0));
  require(n_layer == config.n_layer,
          "{}: holds {} layers in blocks of {}, the configuration's n_layer is {}", leaves.where(),
          n_layer, layout.block_size, config.n_layer);
  return layout;
}

/// Says which leaves a parameter is made of.
class PartFinder {
 public:
  PartFinder(const ModelConfig& config, const Layout& layout) : c_(config), layout_(layout) {}

  // Empty when there is no leaf for it.
  std::vector<Part> parts(const ParameterSpec& spec) {
    if (spec.name == "tok_embeddings.weight")
      return {{layout_.root + "token_embedder.embedding", -1, spec.shape, 0, spec.shape.numel()}};
    if (spec.name == "norm.weight")
      return {{layout_.root + "decoder.decoder_norm.scale", -1, spec.shape, 0, spec.shape.numel()}};
    if (spec.name == "output.weight")
      return {{layout_.root + "decoder.logits_dense.kernel",
               -1,
               {c_.dim, c_.vocab_size},
               c_.dim,
               spec.shape.numel()}};
    return layer_parts(spec);
  }

 private:
  std::vector<Part> layer_parts(const ParameterSpec& spec) {
    const std::string before = "layers.";
    const size_t dot = spec.name.find('.', before.size());
    if (!spec.name.starts_with(before) || dot == std::string::npos) return {};
    int64_t layer = 0;
    std::from_chars(spec.name.data() + before.size(), spec.name.data() + dot, layer);
    block_ = layer / layout_.block_size;
    module_ = layer % layout_.block_size;
    return named_parts(spec.name.substr(dot + 1), spec.shape);
  }

  std::vector<Part> named_parts(const std::string& name, const Shape& shape) {
    const int64_t d = c_.head_dim;
    const int64_t f = c_.intermediate_size;
    if (name == "attention_norm.weight")
      return {as_it_is("pre_self_attention_layer_norm", ".scale", shape)};
    if (name == "ffn_norm.weight")
      return {as_it_is("post_self_attention_layer_norm", ".scale", shape)};
    if (name == "attention.wqkv.weight")
      return {matrix("self_attention", ".query.kernel", {c_.dim, c_.n_head, d}, c_.dim),
              matrix("self_attention", ".key.kernel", {c_.dim, c_.n_kv_head, d}, c_.dim),
              matrix("self_attention", ".value.kernel", {c_.dim, c_.n_kv_head, d}, c_.dim)};
    if (name == "attention.wo.weight")
      return {matrix("self_attention", ".out.kernel", {c_.n_head, d, c_.dim}, c_.n_head * d)};
    if (name == "feed_forward.w1.weight")
      return {matrix("mlp", ".wi_0.kernel", {c_.dim, f}, c_.dim)};
    if (name == "feed_forward.w3.weight")
      return {matrix("mlp", ".wi_1.kernel", {c_.dim, f}, c_.dim)};
    if (name == "feed_forward.w2.weight") return {matrix("mlp", ".wo.kernel", {f, c_.dim}, f)};
    return composition_parts(name, shape);
  }

  std::vector<Part> composition_parts(const std::string& name, const Shape& shape) {
    constexpr std::pair<const char*, const char*> kLeaves[] = {
        {"attention.q_norm.scale", ".q_norm.scale"},
        {"attention.k_norm.scale", ".k_norm.scale"},
        {"attention.dyn_w_proj.dw1", ".AttentionOp_0.dyn_w_proj.dw1.kernel"},
        {"attention.dyn_w_proj.qkw", ".AttentionOp_0.dyn_w_proj.qkw"},
        {"attention.dyn_w_proj.dd", ".AttentionOp_0.dyn_w_proj.dd.kernel"},
        {"attention.dyn_w_proj.pre_proj.w", ".AttentionOp_0.pre_proj.w"},
        {"attention.dyn_w_proj.post_proj.w", ".AttentionOp_0.post_proj.w"}};
    for (const auto& [published, leaf] : kLeaves)
      if (name == published) return {as_it_is("self_attention", leaf, shape)};
    return {};
  }

  std::string leaf(const char* module, const char* rest) const {
    return fmt::format("{}decoder.layers.{}_{}{}", layout_.root, module, module_, rest);
  }
  Part as_it_is(const char* module, const char* rest, const Shape& shape) const {
    return {leaf(module, rest), block_, shape, 0, shape.numel()};
  }
  Part matrix(const char* module, const char* rest, const Shape& shape, int64_t columns) const {
    return {leaf(module, rest), block_, shape, columns, shape.numel()};
  }

  const ModelConfig& c_;
  const Layout& layout_;
  int64_t block_ = 0;
  int64_t module_ = 0;
};

// The vocabulary of an unstacked leaf may be padded: any other extent must be as expected.
bool has_expected_shape(const Part& part, const Shape& shape) {
  const int stacked = part.block < 0 ? 0 : 1;
  if (shape.rank() != part.shape.rank() + stacked) return false;
  for (int i = 0; i < part.shape.rank(); ++i) {
    const int64_t extent = shape[i == 0 ? 0 : i + stacked];
    const bool vocabulary = part.shape.rank() == 2 && i == (part.columns == 0 ? 0 : 1);
    const bool padded = stacked == 0 && vocabulary && extent > part.shape[i];
    if (extent != part.shape[i] && !padded) return false;
  }
  return stacked == 0 || part.block < shape[1];
}

std::string expected_shape(const Part& part) {
  std::vector<std::string> dims;
  for (const int64_t dim : part.shape.dims()) dims.push_back(std::to_string(dim));
  if (part.block >= 0) dims.insert(dims.begin() + 1, "blocks of layers");
  return fmt::format("[{}]", fmt::join(dims, ","));
}

const StoredTensor& checked_leaf(const TensorSource& leaves, const Part& part) {
  const StoredTensor* leaf = leaves.find(part.leaf);
  require(leaf != nullptr, "{}: leaf '{}' is missing", leaves.where(), part.leaf);
  require(has_expected_shape(part, leaf->shape), "{}: shape {}, expected {}", leaf->file,
          to_string(leaf->shape), expected_shape(part));
  return *leaf;
}

/// What a MaxTextSource is made of.
struct Mapped {
  std::vector<StoredTensor> tensors;
  std::vector<std::vector<Part>> parts;
  std::vector<std::string> warnings;
};

std::vector<std::string> unused_leaves(const TensorSource& leaves,
                                       const std::set<std::string>& used) {
  std::vector<std::string> unused;
  for (const StoredTensor& leaf : leaves.tensors())
    if (used.count(leaf.name) == 0) unused.push_back(leaf.name);
  if (unused.empty()) return {};
  const size_t n = unused.size();
  unused.resize(std::min(n, kNamesInMessages));
  return {fmt::format("{}: {} leaves are of no use to the configuration: {}{}", leaves.where(), n,
                      fmt::join(unused, ", "), n > unused.size() ? ", …" : "")};
}

Mapped map_leaves(const TensorSource& leaves, const ModelConfig& config) {
  const Layout layout = find_layout(leaves, config);
  PartFinder finder(config, layout);
  Mapped mapped;
  std::set<std::string> used;
  for (const ParameterSpec& spec : parameter_specs(config)) {
    std::vector<Part> parts = finder.parts(spec);
    require(!parts.empty(), "{}: MaxText has no leaf for the parameter '{}' of this configuration",
            leaves.where(), spec.name);
    for (const Part& part : parts) {
      checked_leaf(leaves, part);
      used.insert(part.leaf);
    }
    const StoredTensor& first = leaves.at(parts.front().leaf);
    mapped.tensors.push_back({spec.name, first.dtype, spec.shape, first.file});
    mapped.parts.push_back(std::move(parts));
  }
  mapped.warnings = unused_leaves(leaves, used);
  return mapped;
}

class MaxTextSource : public TensorSource {
 public:
  MaxTextSource(std::unique_ptr<TensorSource> leaves, Mapped mapped)
      : TensorSource(leaves->where(), std::move(mapped.tensors), std::move(mapped.warnings)),
        leaves_(std::move(leaves)),
        parts_(std::move(mapped.parts)) {}

 private:
  std::shared_ptr<const std::byte> contiguous(size_t) const override { return nullptr; }

  void read_range(size_t index, int64_t begin, const ElementTarget& to) const override {
    int64_t part_begin = 0;
    for (const Part& part : parts_[index]) {
      // What is wanted of this part, counted from its beginning.
      const int64_t from = std::max<int64_t>(0, begin - part_begin);
      const int64_t end = std::min(part.n, begin + to.n - part_begin);
      if (from < end) read_part(part, from, to.part(part_begin + from - begin, end - from));
      part_begin += part.n;
    }
  }

  void read_part(const Part& part, int64_t from, const ElementTarget& to) const {
    if (part.columns == 0 && part.block < 0) return leaves_->read(part.leaf, from, to);
    if (part.columns == 0 && to.n == part.n)
      return leaves_->read_slice(part.leaf, 1, part.block, to);
    const std::vector<float> leaf = whole_leaf(part);
    if (part.columns == 0) {
      read_elements(DType::f32, reinterpret_cast<const std::byte*>(leaf.data() + from), 1, to);
    } else {
      transpose(leaf, part.columns, from, to);
    }
  }

  std::vector<float> whole_leaf(const Part& part) const {
    const Shape& shape = leaves_->at(part.leaf).shape;
    const int64_t n = part.block < 0 ? shape.numel() : shape.numel() / shape[1];
    std::vector<float> values(static_cast<size_t>(n));
    if (part.block < 0) {
      leaves_->read(part.leaf, 0, std::span(values));
    } else {
      leaves_->read_slice(part.leaf, 1, part.block, std::span(values));
    }
    return values;
  }

  // Elements from `from` on of the transposed of [columns, rows].
  static void transpose(const std::vector<float>& leaf, int64_t columns, int64_t from,
                        const ElementTarget& to) {
    const int64_t n_row = std::ssize(leaf) / columns;
    std::vector<float> rows(static_cast<size_t>(kRows * columns));
    for (int64_t row = from / columns; row * columns < from + to.n; row += kRows) {
      const int64_t n = std::min(kRows, n_row - row);
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t r = 0; r < n; ++r)
          rows[static_cast<size_t>(r * columns + c)] =
              leaf[static_cast<size_t>(c * n_row + row + r)];
      const int64_t begin = std::max(from, row * columns);
      const int64_t end = std::min(from + to.n, (row + n) * columns);
      const float* first = rows.data() + (begin - row * columns);
      read_elements(DType::f32, reinterpret_cast<const std::byte*>(first), 1,
                    to.part(begin - from, end - begin));
    }
  }

  std::unique_ptr<TensorSource> leaves_;
  std::vector<std::vector<Part>> parts_;
};

}  // namespace

std::unique_ptr<TensorSource> open_maxtext(const std::string& path, const ModelConfig& config) {
  std::unique_ptr<TensorSource> leaves = open_zarr_folder(find_orbax_arrays(path), "params.");
  Mapped mapped = map_leaves(*leaves, config);
  return std::make_unique<MaxTextSource>(std::move(leaves), std::move(mapped));
}

}  // namespace dcformer
