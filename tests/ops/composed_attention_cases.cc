#include "tests/ops/composed_attention_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tests/reference/bfloat16.h"
#include "tests/support/random_values.h"

namespace dcformer::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Draws one choice after the other from a seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : values_(random_integers(64, seed, 1 << 20)) {}
  int64_t below(int64_t n) { return values_[next_++ % values_.size()] % n; }
  bool coin() { return below(2) == 1; }
  template <typename T>
  T one_of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(below(static_cast<int64_t>(choices.size())))];
  }

 private:
  std::vector<int32_t> values_;
  size_t next_ = 0;
};

// Rows of `width` laid out `stride` apart, NaN between them.
std::vector<float> spread(const std::vector<double>& values, int64_t width, int64_t stride) {
  const int64_t rows = width == 0 ? 0 : static_cast<int64_t>(values.size()) / width;
  std::vector<float> result(static_cast<size_t>(rows * stride), kNaN);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i)
      result[static_cast<size_t>(r * stride + i)] =
          static_cast<float>(values[static_cast<size_t>(r * width + i)]);
  return result;
}

std::vector<BFloat16> to_bfloat16s(const std::vector<float>& values) {
  std::vector<BFloat16> result;
  for (const float x : values) result.emplace_back(x);
  return result;
}

void fill_padding(std::vector<float>& values, int64_t first_row, int64_t row_size) {
  const auto begin = std::min(values.size(), static_cast<size_t>(first_row * row_size));
  std::fill(values.begin() + static_cast<int64_t>(begin), values.end(), kNaN);
}

void fill_values(reference::AttentionProblem& p, double scale, uint64_t seed) {
  const auto values = [&](int64_t n, uint64_t stream, double s) {
    return rounded_to_float(random_doubles(n, seed * 16 + stream, s));
  };
  p.q = values(p.n_query * p.n_head * p.head_dim, 3, scale);
  p.k = values(p.n_key * p.n_kv_head * p.head_dim, 4, scale);
  p.v = values(p.n_key * p.n_kv_head * p.head_dim, 5, 1);
  if (p.dynamic && p.query_side)
    p.query_weights = values(p.n_query * p.n_group * 2 * p.block(), 6, 0.7);
  if (p.dynamic && p.key_side) p.key_weights = values(p.n_key * p.n_group * 2 * p.block(), 7, 0.7);
  const int64_t base = p.n_group * p.group_heads() * p.group_heads();
  if (p.base_projection) {
    p.base_pre = values(base, 8, 0.5);
    p.base_post = values(base, 9, 0.5);
  }
}

}  // namespace

reference::AttentionProblem random_attention_problem(uint64_t seed, int64_t limit) {
  Draw draw(seed);
  reference::AttentionProblem p;
  const int64_t heads_in_group = draw.one_of<int64_t>({1, 2, 3, 4, 5, 8});
  p.n_group = draw.one_of<int64_t>({1, 1, 2, 3});
  p.n_head = heads_in_group * p.n_group;
  p.n_kv_head = draw.coin() ? p.n_head : 1;
  if (p.n_head % 2 == 0 && draw.coin()) p.n_kv_head = p.n_head / 2;
  p.head_dim = draw.one_of<int64_t>({1, 3, 8, 16, 17, 20, 33, 64, 80, 130});
  p.rank = draw.one_of<int64_t>({1, 2, 2, 3, 8});
  p.n_query = 1 + draw.below(40);
  p.n_key = 1 + draw.below(70);
  while (p.n_query * p.n_key * p.n_head > limit) {
    p.n_query = std::max<int64_t>(1, p.n_query / 2);
    p.n_key = std::max<int64_t>(1, p.n_key * 2 / 3);
  }
  p.causal = draw.below(3) != 0;
  if (p.causal && p.n_key < p.n_query && draw.coin()) p.n_key = p.n_query;
  p.start = std::max<int64_t>(0, p.n_key - p.n_query);
  if (p.causal && draw.coin()) p.window = 1 + draw.below(40);
  if (draw.below(3) == 0) p.key_length = 1 + draw.below(p.n_key);
  if (draw.below(3) == 0) {
    p.query_segments = random_integers(p.n_query, seed + 1, 3);
    p.key_segments = random_integers(p.n_key, seed + 2, 3);
  }
  p.pre = draw.below(4) != 0;
  p.post = draw.below(4) != 0;
  p.query_side = draw.below(4) != 0;
  p.key_side = draw.below(4) != 0;
  p.dynamic = draw.below(5) != 0;
  p.gates = draw.below(4) != 0;
  p.base_projection = draw.below(3) == 0;
  fill_values(p, draw.one_of<double>({0.5, 1, 3}), seed);
  return p;
}

reference::AttentionProblem long_attention_problem(int64_t n_query, int64_t n_key, int64_t head_dim,
                                                   double scale, uint64_t seed) {
  reference::AttentionProblem p;
  p.n_head = p.n_kv_head = 4;
  p.n_group = 2;
  p.head_dim = head_dim;
  p.n_query = n_query;
  p.n_key = n_key;
  fill_values(p, scale, seed);
  return p;
}

reference::AttentionProblem in_bf16(reference::AttentionProblem p) {
  for (auto* values : {&p.q, &p.k, &p.v})
    for (double& x : *values) x = reference::to_bfloat16(x);
  p.round_to_bf16 = true;
  return p;
}

std::string describe(const reference::AttentionProblem& p) {
  return fmt::format(
      "T {} S {} H {} Hkv {} D {} G {} R {}{} window {} start {} length {} segments {}; pre {} "
      "post {} query {} key {} "
      "dynamic {} gates {} base {}",
      p.n_query, p.n_key, p.n_head, p.n_kv_head, p.head_dim, p.n_group, p.rank,
      p.causal ? " causal" : "", p.window.value_or(0), p.first_position(),
      p.key_length.value_or(p.n_key), !p.query_segments.empty(), p.pre, p.post, p.query_side,
      p.key_side, p.dynamic, p.gates, p.base_projection);
}

AttentionCase::AttentionCase(const reference::AttentionProblem& p)
    : problem_(p), q_stride_(p.n_head * p.head_dim + 5), kv_stride_(p.n_kv_head * p.head_dim + 3) {
  q_ = spread(p.q, p.n_head * p.head_dim, q_stride_);
  k_ = spread(p.k, p.n_kv_head * p.head_dim, kv_stride_);
  v_ = spread(p.v, p.n_kv_head * p.head_dim, kv_stride_);
  query_weights_ = to_floats(p.query_weights);
  key_weights_ = to_floats(p.key_weights);
  base_pre_ = to_floats(p.base_pre);
  base_post_ = to_floats(p.base_post);
  fill_padding(k_, key_length(), kv_stride_);
  fill_padding(v_, key_length(), kv_stride_);
  fill_padding(key_weights_, key_length(), p.n_group * 2 * p.block());
  if (p.round_to_bf16) {
    q16_ = to_bfloat16s(q_);
    k16_ = to_bfloat16s(k_);
    v16_ = to_bfloat16s(v_);
  }
  query_segments_.assign(p.query_segments.begin(), p.query_segments.end());
  key_segments_.assign(p.key_segments.begin(), p.key_segments.end());
  sequences_ = {{0, p.n_query, 0, key_length(), p.first_position()}};
}

ConstHeads AttentionCase::heads(const std::vector<float>& f32, const std::vector<BFloat16>& bf16,
                                int64_t n_token, int64_t n_head, int64_t stride) const {
  const int64_t D = problem_.head_dim;
  if (problem_.round_to_bf16)
    return HeadView<const BFloat16>{bf16.data(), n_token, n_head, D, stride, D};
  return HeadView<const float>{f32.data(), n_token, n_head, D, stride, D};
}

AttentionInputs AttentionCase::inputs() const {
  const reference::AttentionProblem& p = problem_;
  AttentionInputs in;
  in.q = heads(q_, q16_, p.n_query, p.n_head, q_stride_);
  in.k = heads(k_, k16_, p.n_key, p.n_kv_head, kv_stride_);
  in.v = heads(v_, v16_, p.n_key, p.n_kv_head, kv_stride_);
  const auto view = [&](const std::vector<float>& weights, bool on) {
    if (!on || !p.dynamic) return CompositionView{};
    return CompositionView{weights.data(), p.n_group * 2 * p.block(), 2 * p.block(), p.block()};
  };
  Composition& c = in.composition;
  c.n_group = p.n_group;
  c.rank = p.rank;
  c.pre = p.pre;
  c.post = p.post;
  c.gates = p.gates;
  c.query = view(query_weights_, p.query_side);
  c.key = view(key_weights_, p.key_side);
  if (p.base_projection) {
    c.pre_base = base_pre_.data();
    c.post_base = base_post_.data();
  }
  in.mask.causal = p.causal;
  in.mask.window = p.window;
  if (!query_segments_.empty()) {
    in.mask.query_segments = query_segments_.data();
    in.mask.key_segments = key_segments_.data();
  }
  in.sequences = sequences_;
  return in;
}

AttentionCase::Output AttentionCase::forward(Context& context) const {
  const reference::AttentionProblem& p = problem_;
  Output out;
  out.o.assign(static_cast<size_t>(p.n_query * p.n_head * p.head_dim), kNaN);
  out.statistics.assign(static_cast<size_t>(p.n_query * p.n_head * 2), kNaN);
  const HeadView<float> o{out.o.data(),          p.n_query, p.n_head, p.head_dim,
                          p.n_head * p.head_dim, p.head_dim};
  composed_attention(context, inputs(), o, out.statistics.data());
  return out;
}

std::vector<float> AttentionCase::forward_paged(Context& context, DType dtype, int64_t step) const {
  const reference::AttentionProblem& p = problem_;
  AttentionInputs in = inputs();
  const PageLayout layout{dtype, p.n_kv_head, p.head_dim, p.n_group,
                          in.composition.key.data == nullptr ? 0 : p.block()};
  const int64_t n_page = (key_length() + kPanel - 1) / kPanel;
  // All bits set is NaN in every type.
  std::vector<std::vector<uint8_t>> memory(
      static_cast<size_t>(n_page),
      std::vector<uint8_t>(static_cast<size_t>(layout.numel()) * size_of(dtype) + 64, 0xff));
  std::vector<void*> pages;
  for (auto& page : memory) pages.push_back(page.data());
  write_pages(layout, pages, 0, in.k, in.v, in.composition, 0, key_length());
  std::vector<float> out(static_cast<size_t>(p.n_query * p.n_head * p.head_dim), kNaN);
  const HeadView<float> o{out.data(), p.n_query, p.n_head, p.head_dim, p.n_head * p.head_dim,
                          p.head_dim};
  const std::span<void* const> table(pages);
  for (int64_t done = 0; done < p.n_query; done += step) {
    const AttentionSequence sequence{done, std::min(step, p.n_query - done), 0, key_length(),
                                     p.first_position() + done};
    in.sequences = {&sequence, 1};
    composed_attention_paged(context, in, layout, {&table, 1}, o);
  }
  return out;
}

AttentionCase::Gradients AttentionCase::backward(Context& context,
                                                 const std::vector<float>& statistics,
                                                 const std::vector<float>& d_out) const {
  const reference::AttentionProblem& p = problem_;
  Gradients g;
  const auto sized = [](const std::vector<double>& like, float value) {
    return std::vector<float>(like.size(), value);
  };
  g.q = sized(p.q, kNaN);
  // Keys beyond the length belong to no sequence: their gradients are the caller's to clear.
  g.k = sized(p.k, 0);
  g.v = sized(p.v, 0);
  g.query_weights = sized(p.query_weights, kNaN);
  g.key_weights = sized(p.key_weights, 0);
  g.base_pre = sized(p.base_pre, 0);
  g.base_post = sized(p.base_post, 0);
  const int64_t width = p.n_head * p.head_dim;
  const int64_t kv_width = p.n_kv_head * p.head_dim;
  AttentionGradients out;
  out.dq = {g.q.data(), p.n_query, p.n_head, p.head_dim, width, p.head_dim};
  out.dk = {g.k.data(), p.n_key, p.n_kv_head, p.head_dim, kv_width, p.head_dim};
  out.dv = {g.v.data(), p.n_key, p.n_kv_head, p.head_dim, kv_width, p.head_dim};
  out.dquery = g.query_weights.data();
  out.dkey = g.key_weights.data();
  if (p.base_projection) {
    out.dpre_base = g.base_pre.data();
    out.dpost_base = g.base_post.data();
  }
  const HeadView<const float> d{d_out.data(), p.n_query, p.n_head, p.head_dim, width, p.head_dim};
  composed_attention_backward(context, inputs(), statistics.data(), d, out);
  return g;
}

}  // namespace dcformer::test
