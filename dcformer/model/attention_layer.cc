#include "dcformer/model/attention_layer.h"

#include "dcformer/model/operand.h"
#include "dcformer/ops/convert.h"
#include "dcformer/ops/rms_norm.h"

namespace dcformer {
namespace {

std::vector<AttentionSequence> sequences_of(const SequenceBatch& batch) {
  std::vector<AttentionSequence> sequences;
  for (int64_t s = 0; s < batch.n_sequence(); ++s) {
    const int64_t begin = batch.offsets[static_cast<size_t>(s)];
    const int64_t start = batch.starts[static_cast<size_t>(s)];
    sequences.push_back({begin, batch.length(s), begin, batch.length(s) + start, start});
  }
  return sequences;
}

}  // namespace

AttentionLayer::AttentionLayer(const ModelConfig& config, int64_t layer, Parameters& parameters)
    : config_(config), layer_(layer) {
  const std::string prefix = "layers." + std::to_string(layer) + ".attention.";
  const auto find = [&](const char* name) { return &parameters.at(prefix + name); };
  wqkv_ = find("wqkv.weight");
  wo_ = find("wo.weight");
  if (config.use_qk_norm) {
    q_norm_ = find("q_norm.scale");
    k_norm_ = find("k_norm.scale");
  }
  if (config.has_dynamic()) {
    dw1_ = find("dyn_w_proj.dw1");
    qkw_ = find("dyn_w_proj.qkw");
    if (config.gates) dd_ = find("dyn_w_proj.dd");
  }
  if (config.has_base()) {
    pre_base_ = find("dyn_w_proj.pre_proj.w");
    post_base_ = find("dyn_w_proj.post_proj.w");
  }
}

CompositionParameters AttentionLayer::composition_parameters() const {
  const CompositionSizes s = config_.composition_sizes();
  return {dw1_->matrix(config_.dim), qkw_->matrix(s.n_block() * s.hidden()),
          dd_ == nullptr ? ConstMatrix() : dd_->matrix(config_.dim)};
}

DropoutMask AttentionLayer::composition_dropout(const PassInputs& pass) const {
  return pass.mask(config_.dynamic_dropout, layer_, PassInputs::Site::composition);
}

Tensor AttentionLayer::composition(Context& context, const Tensor& x, const PassInputs& pass,
                                   CompositionSaved* saved) const {
  if (dw1_ == nullptr) return {};
  const CompositionSizes s = config_.composition_sizes();
  const Tensor weights = Tensor::empty(context, DType::f32, {x.shape()[0], s.width()});
  composition_weights(context, x.matrix(), composition_parameters(), s, config_.gelu,
                      weights.matrix().typed<float>(), saved, composition_dropout(pass));
  return weights;
}

// The blocks of a token lie as (pre,query), (pre,key), (post,query), (post,key) for each group.
Composition AttentionLayer::describe(const Tensor& weights) const {
  Composition c;
  if (!config_.use_dcmha) return c;
  const CompositionSizes s = config_.composition_sizes();
  c.n_group = s.n_group;
  c.rank = s.rank;
  c.pre = config_.pre_compose;
  c.post = config_.post_compose;
  c.gates = s.gates;
  if (pre_base_ != nullptr) {
    c.pre_base = pre_base_->floats();
    c.post_base = post_base_->floats();
  }
  if (!weights.defined()) return c;
  const float* data = weights.data<float>();
  if (config_.query_compose) c.query = {data, s.width(), 4 * s.block(), 2 * s.block()};
  if (config_.key_compose) c.key = {data + s.block(), s.width(), 4 * s.block(), 2 * s.block()};
  return c;
}

AttentionInputs AttentionLayer::inputs(const Projected& p, const Tensor& weights,
                                       const PassInputs& pass,
                                       std::span<const AttentionSequence> sequences) const {
  AttentionMask mask;
  if (const int64_t window = config_.window(layer_); window > 0) mask.window = window;
  if (!pass.batch.segments.empty())
    mask.query_segments = mask.key_segments = pass.batch.segments.data();
  return {p.q.heads(config_.n_head),
          p.k.heads(config_.n_kv_head),
          p.v.heads(config_.n_kv_head),
          describe(weights),
          mask,
          sequences};
}

AttentionLayer::Projected AttentionLayer::project(Context& context, const Tensor& qkv,
                                                  const PassInputs& pass, DType type) const {
  const int64_t n = qkv.shape()[0];
  const int64_t width = config_.n_head * config_.head_dim;
  const int64_t kv_width = config_.n_kv_head * config_.head_dim;
  Projected p{Tensor::empty(context, type, {n, width}), Tensor::empty(context, type, {n, kv_width}),
              Tensor::empty(context, type, {n, kv_width})};
  const auto rotate = [&](int64_t column, int64_t n_head, const Parameter* norm, const Tensor& to) {
    HeadView<const float> from =
        Heads(qkv.matrix(), column, n_head, config_.head_dim).typed<float>();
    Tensor normalised;
    if (norm != nullptr) {
      normalised = Tensor::empty(context, DType::f32, to.shape());
      const HeadView<float> view = normalised.heads(n_head).typed<float>();
      rms_norm_heads(context, from, norm->floats(), static_cast<float>(config_.qk_norm_eps), view);
      from = view;
    }
    rope(context, from, pass.positions, pass.rope, RopeDirection::forward, to.heads(n_head));
  };
  rotate(0, config_.n_head, q_norm_, p.q);
  rotate(width, config_.n_kv_head, k_norm_, p.k);
  convert(context, qkv.matrix().col_range(width + kv_width, kv_width), p.v.matrix());
  return p;
}

void AttentionLayer::attend_cached(Context& context, AttentionInputs in, const Projected& p,
                                   const PassInputs& pass, std::vector<AttentionSequence> sequences,
                                   Heads o) const {
  std::vector<std::span<void* const>> pages;
  for (size_t s = 0; s < sequences.size(); ++s) {
    SequenceCache& cache = *pass.batch.caches[s];
    pages.push_back(cache.reserve(context, layer_, sequences[s].n_query));
    write_pages(cache.layout(), pages.back(), sequences[s].start, p.k.heads(config_.n_kv_head),
                p.v.heads(config_.n_kv_head), in.composition, sequences[s].query_begin,
                sequences[s].n_query);
  }
  if (sequences.empty()) return;
  composed_attention_paged(context, in, pass.batch.caches[0]->layout(), pages, o);
}

Tensor AttentionLayer::forward(Context& context, const Tensor& x, const PassInputs& pass,
                               Tape* tape) const {
  const int64_t n = x.shape()[0];
  const Tensor qkv = Tensor::empty(context, DType::f32, {n, wqkv_->spec.shape[0]});
  linear(context, x.matrix(), wqkv_->weight(), qkv.matrix());
  const Projected p = project(context, qkv, pass, x.dtype());
  CompositionSaved saved;
  const Tensor weights = composition(context, x, pass, tape == nullptr ? nullptr : &saved);
  const std::vector<AttentionSequence> sequences = sequences_of(pass.batch);
  const AttentionInputs in = inputs(p, weights, pass, sequences);
  const Tensor o = Tensor::empty(context, x.dtype(), {n, config_.n_head * config_.head_dim});
  const Tensor y = Tensor::empty(context, DType::f32, {n, config_.dim});
  if (pass.batch.cached()) {
    attend_cached(context, in, p, pass, sequences, o.heads(config_.n_head));
  } else {
    const Tensor statistics = Tensor::empty(context, DType::f32, {n, config_.n_head, 2});
    composed_attention(context, in, o.heads(config_.n_head), statistics.data<float>());
    if (tape != nullptr)
      for (const Tensor& t :
           {x, qkv, p.q, p.k, p.v, weights, saved.hidden, saved.inverse_rms, o, statistics})
        tape->push(t);
  }
  linear(context, o.matrix(), wo_->weight(), y.matrix());
  return y;
}

// From the gradients of the rotated q and k to that of the fused projection, whose v part is in
// already.
Tensor AttentionLayer::backward_projection(Context& context, const Tensor& qkv, const Tensor& dq,
                                           const Tensor& dk, Tensor dqkv,
                                           const PassInputs& pass) const {
  const auto unrotate = [&](int64_t column, int64_t n_head, const Parameter* norm,
                            const Tensor& gradient) {
    const HeadView<float> d = gradient.heads(n_head).typed<float>();
    const HeadView<float> to =
        Heads(dqkv.matrix(), column, n_head, config_.head_dim).typed<float>();
    rope(context, d, pass.positions, pass.rope, RopeDirection::inverse, norm == nullptr ? to : d);
    if (norm == nullptr) return;
    const HeadView<const float> x =
        Heads(qkv.matrix(), column, n_head, config_.head_dim).typed<float>();
    rms_norm_heads_backward(context, x, norm->floats(), static_cast<float>(config_.qk_norm_eps), d,
                            to, norm->gradient.data<float>());
  };
  unrotate(0, config_.n_head, q_norm_, dq);
  unrotate(config_.n_head * config_.head_dim, config_.n_kv_head, k_norm_, dk);
  return dqkv;
}

Tensor AttentionLayer::backward(Context& context, const Tensor& dy, const PassInputs& pass,
                                Tape& tape) const {
  const Tensor statistics = tape.pop();
  const Tensor o = tape.pop();
  CompositionSaved saved;
  saved.inverse_rms = tape.pop();
  saved.hidden = tape.pop();
  const Tensor weights = tape.pop();
  Projected p;
  p.v = tape.pop();
  p.k = tape.pop();
  p.q = tape.pop();
  const Tensor qkv = tape.pop();
  const Tensor x = tape.pop();
  // y = o·Woᵀ
  const Tensor dy_operand = as_operand(context, dy, x.dtype());
  linear_backward_weight(context, o.matrix(), dy_operand.matrix(), WeightLayout::out_in,
                         wo_->gradient.matrix());
  const Tensor d_out = Tensor::empty(context, DType::f32, o.shape());
  linear_backward_input(context, dy_operand.matrix(), wo_->weight(), d_out.matrix(), false);
  // o = attention(q, k, v, weights)
  const std::vector<AttentionSequence> sequences = sequences_of(pass.batch);
  const AttentionInputs in = inputs(p, weights, pass, sequences);
  const Tensor dq = Tensor::empty(context, DType::f32, p.q.shape());
  const Tensor dk = Tensor::empty(context, DType::f32, p.k.shape());
  const Tensor dqkv = Tensor::empty(context, DType::f32, qkv.shape());
  const Tensor dweights =
      weights.defined() ? Tensor::zeros(context, DType::f32, weights.shape()) : Tensor();
  AttentionGradients gradients;
  gradients.dq = dq.heads(config_.n_head).typed<float>();
  gradients.dk = dk.heads(config_.n_kv_head).typed<float>();
  gradients.dv = Heads(dqkv.matrix(), (config_.n_head + config_.n_kv_head) * config_.head_dim,
                       config_.n_kv_head, config_.head_dim)
                     .typed<float>();
  if (weights.defined()) {
    // The same places as in `weights`; what no side or stage touches stays 0.
    const Composition places = describe(dweights);
    gradients.dquery = const_cast<float*>(places.query.data);
    gradients.dkey = const_cast<float*>(places.key.data);
  }
  if (pre_base_ != nullptr) {
    gradients.dpre_base = pre_base_->gradient.data<float>();
    gradients.dpost_base = post_base_->gradient.data<float>();
  }
  composed_attention_backward(context, in, statistics.data<float>(),
                              d_out.heads(config_.n_head).typed<float>(), gradients);
  // qkv = x·Wqkvᵀ
  const Tensor dqkv_operand =
      as_operand(context, backward_projection(context, qkv, dq, dk, dqkv, pass), x.dtype());
  linear_backward_weight(context, x.matrix(), dqkv_operand.matrix(), WeightLayout::out_in,
                         wqkv_->gradient.matrix());
  const Tensor dx = Tensor::empty(context, DType::f32, x.shape());
  linear_backward_input(context, dqkv_operand.matrix(), wqkv_->weight(), dx.matrix(), false);
  if (!weights.defined()) return dx;
  const CompositionSizes s = config_.composition_sizes();
  composition_weights_backward(
      context, x.matrix(), composition_parameters(), s, config_.gelu,
      weights.matrix().typed<float>(), saved, dweights.matrix().typed<float>(),
      dx.matrix().typed<float>(),
      {dw1_->gradient_matrix(config_.dim), qkw_->gradient_matrix(s.n_block() * s.hidden()),
       dd_ == nullptr ? Matrix() : dd_->gradient_matrix(config_.dim)},
      composition_dropout(pass));
  return dx;
}

}  // namespace dcformer
