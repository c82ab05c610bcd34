#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dcformer/model/config.h"
#include "dcformer/ops/linear.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {

/// What a parameter is, from the configuration alone.
struct ParameterSpec {
  /// The published checkpoint name.
  std::string name;
  Shape shape;
  /// Standard deviation of its initial normal values; below 0: all ones (norm scales).
  double deviation = 0;
  /// For the named groups of `info`: embedding, attention, composition, feed_forward, norm, output.
  std::string group;
  /// An operand of matrix products: rounded to bf16 in bf16 mode. Others are read as f32.
  bool product_operand = false;
};

/// All parameters of a model in registry order: the order of arenas, norms and checkpoints.
/// `linear_deviation` is that of linear layers and embeddings (0.006 in the published recipe).
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config,
                                           double linear_deviation = 0.006);

/// A parameter in memory.
struct Parameter {
  ParameterSpec spec;
  /// The values as stored: f32 masters in training; whatever the file holds (f32, bf16) in
  /// inference.
  Tensor value;
  /// The form that operations read: `value` itself, or a copy in the compute type that is rebuilt
  /// from it.
  Tensor compute;
  /// f32, in training only.
  Tensor gradient;

  /// The compute form as a matrix of `rows` rows (all but the last dimension by default).
  ConstMatrix matrix() const { return compute.matrix(); }
  ConstMatrix matrix(int64_t rows) const;
  Matrix gradient_matrix(int64_t rows) const;
  /// The f32 values of a parameter that is no product operand.
  const float* floats() const { return compute.data<float>(); }
  /// As the weight of a linear layer `[out, in]`.
  Weight weight() const { return {matrix(), WeightLayout::out_in, nullptr}; }
};

/// The registry: the parameters of one model. Pointers to its entries stay valid when it moves.
class Parameters {
 public:
  /// Uninitialised f32 masters and gradients in flat arenas, for training with products in
  /// `compute`.
  static Parameters for_training(Context& context, const std::vector<ParameterSpec>& specs,
                                 DType compute);
  /// Values given (in registry order), for inference with products in `compute`: nothing is copied
  /// where the types agree.
  static Parameters for_inference(Context& context, const std::vector<ParameterSpec>& specs,
                                  std::vector<Tensor> values, DType compute);

  DType compute_dtype() const { return compute_; }
  bool trains() const { return gradients_.defined(); }
  std::vector<Parameter>& all() { return parameters_; }
  const std::vector<Parameter>& all() const { return parameters_; }
  /// Throws Error when there is no parameter of that name.
  Parameter& at(std::string_view name);

  /// Flat arenas in registry order, in training. [total elements] f32.
  const Tensor& values() const { return values_; }
  const Tensor& gradients() const { return gradients_; }

  /// Draws the initial values: a function of (seed, name, place) alone.
  void initialise(Context& context, uint64_t seed);
  /// Rebuilds the compute forms from the values, after these changed.
  void refresh(Context& context);
  void zero_gradients(Context& context);

 private:
  DType compute_ = DType::f32;
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, size_t> index_;
  Tensor values_;
  Tensor gradients_;
};

}  // namespace dcformer
