#include "dcformer/model/feed_forward.h"

#include "dcformer/model/operand.h"
#include "dcformer/ops/mgate.h"
#include "dcformer/ops/swiglu.h"

namespace dcformer {
namespace {

MatrixView<const float> view(const Tensor& t) {
  if (!t.defined()) return {};
  return t.matrix().typed<float>();
}

}  // namespace

FeedForward::FeedForward(const ModelConfig& config, int64_t layer, Parameters& parameters)
    : config_(config) {
  const std::string prefix = "layers." + std::to_string(layer) + ".feed_forward.";
  w1_ = &parameters.at(prefix + "w1.weight");
  w2_ = &parameters.at(prefix + "w2.weight");
  w3_ = &parameters.at(prefix + "w3.weight");
  if (config.mgate) mg_ = &parameters.at(prefix + "mg.weight");
}

Tensor FeedForward::forward(Context& context, const Tensor& x, Tape* tape) const {
  const int64_t n = x.shape()[0];
  const Shape hidden_shape{n, config_.intermediate_size};
  const Tensor a = Tensor::empty(context, DType::f32, hidden_shape);
  const Tensor b = Tensor::empty(context, DType::f32, hidden_shape);
  linear(context, x.matrix(), w1_->weight(), a.matrix());
  linear(context, x.matrix(), w3_->weight(), b.matrix());
  Tensor gate;
  if (mg_ != nullptr) {
    gate = Tensor::empty(context, DType::f32, {n, config_.mgate_dim});
    linear(context, x.matrix(), mg_->weight(), gate.matrix());
    mgate(context, view(gate), gate.matrix().typed<float>());
  }
  const Tensor hidden = Tensor::empty(context, x.dtype(), hidden_shape);
  swiglu(context, view(a), view(b), view(gate), hidden.matrix());
  const Tensor y = Tensor::empty(context, DType::f32, {n, config_.dim});
  linear(context, hidden.matrix(), w2_->weight(), y.matrix());
  if (tape != nullptr)
    for (const Tensor& t : {x, a, b, gate, hidden}) tape->push(t);
  return y;
}

Tensor FeedForward::backward(Context& context, const Tensor& dy, Tape& tape) const {
  const Tensor hidden = tape.pop();
  const Tensor gate = tape.pop();
  const Tensor b = tape.pop();
  const Tensor a = tape.pop();
  const Tensor x = tape.pop();
  const DType type = x.dtype();
  // y = hidden·W2ᵀ
  const Tensor dy_operand = as_operand(context, dy, type);
  linear_backward_weight(context, hidden.matrix(), dy_operand.matrix(), WeightLayout::out_in,
                         w2_->gradient.matrix());
  const Tensor dhidden = Tensor::empty(context, DType::f32, hidden.shape());
  linear_backward_input(context, dy_operand.matrix(), w2_->weight(), dhidden.matrix(), false);
  // hidden = silu(a)·b·gate
  const Tensor da = Tensor::empty(context, type, hidden.shape());
  const Tensor db = Tensor::empty(context, type, hidden.shape());
  MatrixView<float> dgate;
  Tensor dgate_memory;
  if (gate.defined()) {
    dgate_memory = Tensor::empty(context, DType::f32, gate.shape());
    dgate = dgate_memory.matrix().typed<float>();
  }
  swiglu_backward(context, view(a), view(b), view(gate), view(dhidden), da.matrix(), db.matrix(),
                  dgate);
  // a = x·W1ᵀ, b = x·W3ᵀ
  const Tensor dx = Tensor::empty(context, DType::f32, x.shape());
  linear_backward_weight(context, x.matrix(), da.matrix(), WeightLayout::out_in,
                         w1_->gradient.matrix());
  linear_backward_input(context, da.matrix(), w1_->weight(), dx.matrix(), false);
  linear_backward_weight(context, x.matrix(), db.matrix(), WeightLayout::out_in,
                         w3_->gradient.matrix());
  linear_backward_input(context, db.matrix(), w3_->weight(), dx.matrix(), true);
  if (!gate.defined()) return dx;
  // gate = softmax(x·Wgᵀ)
  const Tensor dlogits = Tensor::empty(context, type, gate.shape());
  mgate_backward(context, view(gate), dgate, dlogits.matrix());
  linear_backward_weight(context, x.matrix(), dlogits.matrix(), WeightLayout::out_in,
                         mg_->gradient.matrix());
  linear_backward_input(context, dlogits.matrix(), mg_->weight(), dx.matrix(), true);
  return dx;
}

}  // namespace dcformer
