#include <algorithm>
#include <cstdlib>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/ops/composed_attention_tiles.h"

// What callers can get wrong: each fault is one exception that names the argument.
namespace dcformer::attention {
namespace {

/// A view's rows of head_dim elements, in bytes.
struct Extent {
  const char* name;
  uintptr_t begin;
  int64_t n_token, n_head, row, token_stride, head_stride;

  Extent(const char* name, ConstHeads h)
      : name(name),
        begin(reinterpret_cast<uintptr_t>(h.data)),
        n_token(h.n_token),
        n_head(h.n_head) {
    const auto size = static_cast<int64_t>(size_of(h.dtype));
    row = h.head_dim * size;
    token_stride = h.token_stride * size;
    head_stride = h.head_stride * size;
  }
  bool empty() const { return begin == 0 || n_token == 0 || n_head == 0 || row == 0; }
  uintptr_t end() const {
    return begin +
           static_cast<uintptr_t>((n_token - 1) * token_stride + (n_head - 1) * head_stride + row);
  }
};

// The usual views of one buffer: the same strides, q, k and v side by side in each token. Two rows
// share bytes when some difference of tokens and heads brings them within one row's length.
bool overlap_of_equal_strides(const Extent& a, const Extent& b) {
  const auto distance = static_cast<int64_t>(b.begin - a.begin);
  const int64_t row = std::max(a.row, b.row);
  const int64_t heads = std::max(a.n_head, b.n_head);
  for (int64_t h = 1 - heads; h < heads; ++h) {
    const int64_t rest = distance - h * a.head_stride;
    const int64_t tokens = rest / std::max<int64_t>(1, a.token_stride);
    for (int64_t t = tokens - 1; t <= tokens + 1; ++t)
      if (std::abs(t) < std::max(a.n_token, b.n_token) && std::abs(rest - t * a.token_stride) < row)
        return true;
  }
  return false;
}

// All rows of both, by their addresses.
bool overlap_of_any(const Extent& a, const Extent& b) {
  struct Row {
    uintptr_t begin, end;
    bool first;
  };
  std::vector<Row> rows;
  for (const Extent* e : {&a, &b})
    for (int64_t t = 0; t < e->n_token; ++t)
      for (int64_t h = 0; h < e->n_head; ++h) {
        const uintptr_t begin =
            e->begin + static_cast<uintptr_t>(t * e->token_stride + h * e->head_stride);
        rows.push_back({begin, begin + static_cast<uintptr_t>(e->row), e == &a});
      }
  std::sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) { return x.begin < y.begin; });
  uintptr_t ends[2] = {0, 0};
  for (const Row& r : rows) {
    if (r.begin < ends[r.first ? 1 : 0]) return true;
    uintptr_t& end = ends[r.first ? 0 : 1];
    end = std::max(end, r.end);
  }
  return false;
}

void require_apart(const Extent& output, const Extent& other) {
  if (output.empty() || other.empty()) return;
  if (output.end() <= other.begin || other.end() <= output.begin) return;
  const bool equal_strides =
      output.token_stride == other.token_stride && output.head_stride == other.head_stride;
  require(
      !(equal_strides ? overlap_of_equal_strides(output, other) : overlap_of_any(output, other)),
      "composed_attention: the output {} overlaps {}, expected memory of its own", output.name,
      other.name);
}

void check_heads(const char* name, ConstHeads h, int64_t n_head, int64_t head_dim, DType dtype) {
  require(h.data != nullptr || h.n_token == 0,
          "composed_attention: {} is null, expected [S,H,D] = [{},{},{}]", name, h.n_token, n_head,
          head_dim);
  require(h.n_head == n_head && h.head_dim == head_dim,
          "composed_attention: expected {} [S,H,D] = [{},{},{}], got [{},{},{}]", name, h.n_token,
          n_head, head_dim, h.n_token, h.n_head, h.head_dim);
  require(h.dtype == dtype, "composed_attention: {} is {}, expected {}", name, name_of(h.dtype),
          name_of(dtype));
}

void check_sequence(const AttentionInputs& inputs, const AttentionSequence& s, bool keys_in_pages) {
  require(s.n_query >= 0 && s.n_key >= 0 && s.query_begin >= 0 && s.key_begin >= 0 && s.start >= 0,
          "composed_attention: a sequence has a negative length or place");
  require(s.query_begin + s.n_query <= inputs.q.n_token,
          "composed_attention: a sequence's queries end at {}, expected at most {}",
          s.query_begin + s.n_query, inputs.q.n_token);
  require(keys_in_pages || s.key_begin + s.n_key <= inputs.k.n_token,
          "composed_attention: a sequence's keys end at {}, expected at most {}",
          s.key_begin + s.n_key, inputs.k.n_token);
}

}  // namespace

void check_inputs(const AttentionInputs& in, bool keys_in_pages) {
  const Composition& c = in.composition;
  require(in.q.n_head > 0 && in.q.head_dim > 0,
          "composed_attention: q is [{},{},{}], expected [N,H,D] with heads", in.q.n_token,
          in.q.n_head, in.q.head_dim);
  require(in.q.data != nullptr || in.q.n_token == 0,
          "composed_attention: q is null, expected [N,H,D] = [{},{},{}]", in.q.n_token, in.q.n_head,
          in.q.head_dim);
  if (!keys_in_pages) {
    require(in.k.n_head > 0 && in.q.n_head % in.k.n_head == 0,
            "composed_attention: k has {} heads, expected a divisor of {}", in.k.n_head,
            in.q.n_head);
    check_heads("k", in.k, in.k.n_head, in.q.head_dim, in.q.dtype);
    check_heads("v", in.v, in.k.n_head, in.q.head_dim, in.q.dtype);
    require(in.v.n_token == in.k.n_token, "composed_attention: expected v of {} keys, got {}",
            in.k.n_token, in.v.n_token);
  }
  require(c.n_group > 0 && in.q.n_head % c.n_group == 0,
          "composed_attention: {} groups, expected a divisor of {} heads", c.n_group, in.q.n_head);
  require(in.q.n_head / c.n_group <= kMaxGroupHeads,
          "composed_attention: groups of {} heads, expected at most {}", in.q.n_head / c.n_group,
          kMaxGroupHeads);
  require(c.rank >= 0 && c.rank <= kMaxRank, "composed_attention: rank is {}, expected 0 to {}",
          c.rank, kMaxRank);
  require(in.mask.window.value_or(1) >= 1, "composed_attention: window is {}, expected at least 1",
          in.mask.window.value_or(1));
  require(!in.mask.window || in.mask.causal, "composed_attention: a window needs causal attention");
  require((in.mask.query_segments == nullptr) == (in.mask.key_segments == nullptr),
          "composed_attention: segments are needed for both queries and keys, or for neither");
  for (const AttentionSequence& s : in.sequences) check_sequence(in, s, keys_in_pages);
}

void check_output(const AttentionInputs& in, Heads o, bool keys_in_pages) {
  require(o.n_token == in.q.n_token && o.n_head == in.q.n_head && o.head_dim == in.q.head_dim,
          "composed_attention: expected o [N,H,D] = [{},{},{}], got [{},{},{}]", in.q.n_token,
          in.q.n_head, in.q.head_dim, o.n_token, o.n_head, o.head_dim);
  require(o.data != nullptr || o.n_token == 0,
          "composed_attention: o is null, expected [N,H,D] = [{},{},{}]", o.n_token, o.n_head,
          o.head_dim);
  const Extent output("o", o);
  require_apart(output, Extent("q", in.q));
  if (keys_in_pages) return;
  require_apart(output, Extent("k", in.k));
  require_apart(output, Extent("v", in.v));
}

void check_gradients(const AttentionInputs& in, HeadView<const float> do_,
                     const AttentionGradients& out) {
  const auto check = [](const char* name, ConstHeads h, int64_t n_token, int64_t n_head,
                        int64_t head_dim) {
    require(h.n_token == n_token && h.n_head == n_head && h.head_dim == head_dim,
            "composed_attention_backward: expected {} = [{},{},{}], got [{},{},{}]", name, n_token,
            n_head, head_dim, h.n_token, h.n_head, h.head_dim);
    require(h.data != nullptr || n_token == 0,
            "composed_attention_backward: {} is null, expected [{},{},{}]", name, n_token, n_head,
            head_dim);
  };
  check("do", do_, in.q.n_token, in.q.n_head, in.q.head_dim);
  check("dq", out.dq, in.q.n_token, in.q.n_head, in.q.head_dim);
  check("dk", out.dk, in.k.n_token, in.k.n_head, in.k.head_dim);
  check("dv", out.dv, in.k.n_token, in.k.n_head, in.k.head_dim);
  const Composition& c = in.composition;
  const auto check_presence = [](const char* name, const void* gradient, const void* input) {
    require(input == nullptr || gradient != nullptr,
            "composed_attention_backward: {} is null, expected the layout of its weights", name);
  };
  check_presence("dquery", out.dquery, c.query.data);
  check_presence("dkey", out.dkey, c.key.data);
  check_presence("dpre_base", out.dpre_base, c.pre_base);
  check_presence("dpost_base", out.dpost_base, c.post_base);
  const std::vector<Extent> outputs = {{"dq", out.dq}, {"dk", out.dk}, {"dv", out.dv}};
  const std::vector<Extent> inputs = {{"q", in.q}, {"k", in.k}, {"v", in.v}, {"do", do_}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const Extent& input : inputs) require_apart(outputs[i], input);
    for (size_t j = i + 1; j < outputs.size(); ++j) require_apart(outputs[i], outputs[j]);
  }
}

}  // namespace dcformer::attention
