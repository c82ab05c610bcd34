#pragma once

#include "dcformer/model/parameters.h"
#include "dcformer/model/tape.h"

namespace dcformer {

/// The gated MLP: w2·(silu(w1·x)·(w3·x)), its hidden slices scaled by mgate's entries where that is
/// on.
class FeedForward {
 public:
  FeedForward(const ModelConfig& config, int64_t layer, Parameters& parameters);

  /// x is the normalised input [N,E] in the compute type; returns [N,E] f32.
  Tensor forward(Context& context, const Tensor& x, Tape* tape) const;
  /// For dy [N,E] f32 returns dx [N,E] f32 and adds to the parameters' gradients.
  Tensor backward(Context& context, const Tensor& dy, Tape& tape) const;

 private:
  const ModelConfig& config_;
  const Parameter* w1_;
  const Parameter* w2_;
  const Parameter* w3_;
  const Parameter* mg_ = nullptr;
};

}  // namespace dcformer
