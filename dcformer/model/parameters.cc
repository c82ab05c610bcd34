#include "dcformer/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"
#include "dcformer/base/random.h"
#include "dcformer/ops/convert.h"

namespace dcformer {
namespace {

/// Collects the specifications of a model.
class SpecList {
 public:
  SpecList(const ModelConfig& config, double linear) : c_(config), linear_(linear) {}

  std::vector<ParameterSpec> build() {
    add("tok_embeddings.weight", {c_.vocab_size, c_.dim}, linear_, "embedding", false);
    for (int64_t layer = 0; layer < c_.n_layer; ++layer) {
      prefix_ = "layers." + std::to_string(layer) + ".";
      norm("attention_norm.weight", c_.dim);
      attention();
      norm("ffn_norm.weight", c_.dim);
      feed_forward();
    }
    prefix_.clear();
    norm("norm.weight", c_.dim);
    add("output.weight", {c_.vocab_size, c_.dim}, linear_, "output", true);
    return std::move(specs_);
  }

 private:
  void add(const std::string& name, const Shape& shape, double deviation, const std::string& group,
           bool product_operand) {
    specs_.push_back({prefix_ + name, shape, deviation, group, product_operand});
  }
  void norm(const std::string& name, int64_t n) { add(name, {n}, -1, "norm", false); }

  void attention() {
    const int64_t width = c_.n_head * c_.head_dim;
    add("attention.wqkv.weight", {width + 2 * c_.n_kv_head * c_.head_dim, c_.dim}, linear_,
        "attention", true);
    if (c_.use_qk_norm) {
      norm("attention.q_norm.scale", c_.head_dim);
      norm("attention.k_norm.scale", c_.head_dim);
    }
    composition();
    add("attention.wo.weight", {c_.dim, width}, linear_, "attention", true);
  }

  // Initial deviations: the published JAX code's (docs/design.md, section 2).
  void composition() {
    const CompositionSizes s = c_.composition_sizes();
    const auto width = static_cast<double>(c_.n_head * c_.head_dim);
    const auto hidden = static_cast<double>(s.hidden());
    const auto heads = static_cast<double>(s.group_heads);
    const std::string name = "attention.dyn_w_proj.";
    const std::string group = "composition";
    if (c_.has_dynamic()) {
      add(name + "dw1", {c_.dim, s.n_group, 4, s.hidden()}, std::sqrt(2 / (width + hidden)), group,
          true);
      add(name + "qkw", {s.n_group, 4, s.hidden(), 2 * s.rank, s.group_heads},
          0.02 / (std::sqrt(hidden) * (heads + static_cast<double>(s.rank))), group, true);
      if (c_.gates)
        add(name + "dd", {c_.dim, s.n_group, 4 * s.group_heads},
            0.005 * std::sqrt(2 / (width + heads)), group, true);
    }
    if (c_.has_base())
      for (const char* stage : {"pre_proj.w", "post_proj.w"})
        add(name + stage, {s.n_group, s.group_heads, s.group_heads}, 0.1 * std::sqrt(1 / heads),
            group, false);
  }

  void feed_forward() {
    const std::string group = "feed_forward";
    add("feed_forward.w1.weight", {c_.intermediate_size, c_.dim}, linear_, group, true);
    add("feed_forward.w3.weight", {c_.intermediate_size, c_.dim}, linear_, group, true);
    add("feed_forward.w2.weight", {c_.dim, c_.intermediate_size}, linear_, group, true);
    if (c_.mgate) add("feed_forward.mg.weight", {c_.mgate_dim, c_.dim}, linear_, group, true);
  }

  const ModelConfig& c_;
  double linear_;
  std::string prefix_;
  std::vector<ParameterSpec> specs_;
};

// Parts of an arena begin on cache lines.
int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

Tensor part_of(const Tensor& arena, int64_t begin, const Shape& shape) {
  std::shared_ptr<std::byte> part(arena.buffer(), arena.buffer().get() + begin * 4);
  return Tensor::adopt(std::move(part), DType::f32, shape);
}

}  // namespace

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config, double linear_deviation) {
  return SpecList(config, linear_deviation).build();
}

ConstMatrix Parameter::matrix(int64_t rows) const {
  const int64_t cols = compute.numel() / rows;
  return {compute.raw(), compute.dtype(), rows, cols, cols};
}

Matrix Parameter::gradient_matrix(int64_t rows) const {
  const int64_t cols = gradient.numel() / rows;
  return {gradient.raw(), gradient.dtype(), rows, cols, cols};
}

Parameters Parameters::for_training(Context& context, const std::vector<ParameterSpec>& specs,
                                    DType compute) {
  Parameters p;
  p.compute_ = compute;
  int64_t total = 0;
  for (const ParameterSpec& spec : specs) total += padded(spec.shape.numel());
  // Zeros, so that the padding between parts adds nothing to norms.
  p.values_ = Tensor::zeros(context, DType::f32, {total});
  p.gradients_ = Tensor::zeros(context, DType::f32, {total});
  int64_t begin = 0;
  for (const ParameterSpec& spec : specs) {
    Parameter parameter{
        spec, part_of(p.values_, begin, spec.shape), {}, part_of(p.gradients_, begin, spec.shape)};
    const bool copy = spec.product_operand && compute != DType::f32;
    parameter.compute = copy ? Tensor::empty(context, compute, spec.shape) : parameter.value;
    p.index_[spec.name] = p.parameters_.size();
    p.parameters_.push_back(std::move(parameter));
    begin += padded(spec.shape.numel());
  }
  return p;
}

Parameters Parameters::for_inference(Context& context, const std::vector<ParameterSpec>& specs,
                                     std::vector<Tensor> values, DType compute) {
  require(values.size() == specs.size(), "parameters: expected {} tensors, got {}", specs.size(),
          values.size());
  Parameters p;
  p.compute_ = compute;
  for (size_t i = 0; i < specs.size(); ++i) {
    const DType wanted = specs[i].product_operand ? compute : DType::f32;
    // f16 stays as the file has it: linear layers convert it where they use it.
    const bool linear_f16 = values[i].dtype() == DType::f16 && specs[i].product_operand &&
                            specs[i].group != "composition";
    const bool same = values[i].dtype() == wanted || linear_f16;
    Parameter parameter{
        specs[i], values[i], same ? values[i] : Tensor::empty(context, wanted, specs[i].shape), {}};
    p.index_[specs[i].name] = i;
    p.parameters_.push_back(std::move(parameter));
  }
  p.refresh(context);
  return p;
}

Parameter& Parameters::at(std::string_view name) {
  const auto found = index_.find(std::string(name));
  require(found != index_.end(), "the model has no parameter '{}'", name);
  return parameters_[found->second];
}

void Parameters::initialise(Context& context, uint64_t seed) {
  for (Parameter& p : parameters_) {
    const std::span<float> values = p.value.span<float>();
    if (p.spec.deviation < 0) {
      std::fill(values.begin(), values.end(), 1.0f);
      continue;
    }
    const Random random(seed, p.spec.name);
    parallel_chunks(context, p.value.numel(), 65536, [&](int64_t begin, int64_t end) {
      random.fill_normal(
          values.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
          p.spec.deviation, static_cast<uint64_t>(begin));
    });
  }
  refresh(context);
}

void Parameters::refresh(Context& context) {
  for (Parameter& p : parameters_)
    if (p.compute.raw() != p.value.raw()) convert(context, p.value.matrix(), p.compute.matrix());
}

void Parameters::zero_gradients(Context& context) {
  float* data = gradients_.data<float>();
  parallel_chunks(context, gradients_.numel(), 1 << 18,
                  [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, 0.0f); });
}

}  // namespace dcformer
