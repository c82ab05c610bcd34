#include "dcformer/ops/composed_attention_kernels.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/composed_attention_mix_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace attention {
namespace HWY_NAMESPACE {
using namespace dcformer::HWY_NAMESPACE;  // NOLINT: the helpers of the same target

constexpr int64_t kMaxLanes = 16;

// The ranks in use as a compile-time number where it is the published 2, else as given.
template <int kRank>
HWY_INLINE int64_t Rank(const MixSizes& s) {
  return kRank > 0 ? kRank : s.rank;
}

// Mixes one vector of columns of one row. `a` holds the M inputs on the stack, contiguous: they are
// read twice, and the tile's stride between heads would miss the cache.
template <int kRank, typename T>
HWY_INLINE void MixForward(const float* a, const PanelTile& out, int64_t row, int64_t column,
                           const MixSizes& s, const float* query, const T* key, const float* base) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t heads = s.heads;
  const int64_t rank = Rank<kRank>(s);
  VF t[kRank > 0 ? kRank : kMaxRank];
  VF u[kRank > 0 ? kRank : kMaxRank];
  for (int64_t r = 0; r < rank; ++r) t[r] = u[r] = hn::Zero(d);
  for (int64_t n = 0; n < heads; ++n) {
    const VF x = hn::Load(d, a + n * lanes);
    for (int64_t r = 0; r < rank; ++r) {
      if (query != nullptr) t[r] = hn::MulAdd(x, hn::Set(d, query[r * heads + n]), t[r]);
      if (key != nullptr) u[r] = hn::MulAdd(x, LoadF(key + (r * heads + n) * kPanel), u[r]);
    }
  }
  const int64_t w2 = rank * heads;
  const int64_t gate = 2 * rank * heads;
  for (int64_t m = 0; m < heads; ++m) {
    const VF x = hn::Load(d, a + m * lanes);
    VF y = x;
    if (query != nullptr) {
      y = hn::MulAdd(x, hn::Set(d, query[gate + m]), y);
      for (int64_t r = 0; r < rank; ++r)
        y = hn::MulAdd(t[r], hn::Set(d, query[w2 + r * heads + m]), y);
    }
    if (key != nullptr) {
      y = hn::MulAdd(x, LoadF(key + (gate + m) * kPanel), y);
      for (int64_t r = 0; r < rank; ++r)
        y = hn::MulAdd(u[r], LoadF(key + (w2 + r * heads + m) * kPanel), y);
    }
    if (base != nullptr)
      for (int64_t n = 0; n < heads; ++n)
        y = hn::MulAdd(hn::Load(d, a + n * lanes), hn::Set(d, base[n * heads + m]), y);
    StoreF(y, out.at(m, row) + column);
  }
}

// Where nothing is mixed: a scaled copy.
HWY_INLINE void ScalePanel(const PanelTile& in, const PanelTile& out, int64_t rows, int64_t heads,
                           const float* row_scale) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t m = 0; m < heads; ++m)
    for (int64_t row = 0; row < rows; ++row) {
      const VF scale = hn::Set(d, row_scale == nullptr ? 1.0f : row_scale[m * rows + row]);
      for (int64_t c = 0; c < kPanel; c += lanes)
        StoreF(hn::Mul(LoadF(in.at(m, row) + c), scale), out.at(m, row) + c);
    }
}

template <typename T>
HWY_INLINE void ComposePanel(const PanelTile& in, const PanelTile& out, int64_t rows,
                             const MixSizes& s, const MixWeights& w, const T* key,
                             const float* row_scale) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (w.query == nullptr && key == nullptr && w.base == nullptr) {
    ScalePanel(in, out, rows, s.heads, row_scale);
    return;
  }
  HWY_ALIGN float a[kMaxGroupHeads * kMaxLanes];
  // Rows inside, so that the key weights of these columns stay in the nearest cache for all of
  // them.
  for (int64_t c = 0; c < kPanel; c += lanes)
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t m = 0; m < s.heads; ++m) {
        VF x = LoadF(in.at(m, row) + c);
        if (row_scale != nullptr) x = hn::Mul(x, hn::Set(d, row_scale[m * rows + row]));
        hn::Store(x, d, a + m * lanes);
      }
      const float* query = w.query == nullptr ? nullptr : w.query + row * s.block();
      const T* key_columns = key == nullptr ? nullptr : key + c;
      if (s.rank == 2) {
        MixForward<2>(a, out, row, c, s, query, key_columns, w.base);
      } else {
        MixForward<0>(a, out, row, c, s, query, key_columns, w.base);
      }
    }
}
void ComposePanelF32(const PanelTile& in, const PanelTile& out, int64_t rows, const MixSizes& s,
                     const MixWeights& w, const float* key, const float* row_scale) {
  ComposePanel(in, out, rows, s, w, key, row_scale);
}
void ComposePanelBf16(const PanelTile& in, const PanelTile& out, int64_t rows, const MixSizes& s,
                      const MixWeights& w, const BFloat16* key, const float* row_scale) {
  ComposePanel(in, out, rows, s, w, key, row_scale);
}

HWY_INLINE void AddTo(VF v, float* p) { StoreF(hn::Add(LoadF(p), v), p); }

// The gradient of MixForward for one vector of columns of one row: `g` holds the M output
// gradients.
template <int kRank>
HWY_INLINE void MixBackward(const float* a, const float* g, const PanelTile& d_tile, int64_t row,
                            int64_t column, const MixSizes& s, const float* query, const float* key,
                            const float* base, float* dquery, float* dkey, float* dbase) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t heads = s.heads;
  const int64_t rank = Rank<kRank>(s);
  const int64_t w2 = rank * heads;
  const int64_t gate = 2 * rank * heads;
  VF t[kRank > 0 ? kRank : kMaxRank];   // Σ_n a·w1q, as in the forward pass
  VF u[kRank > 0 ? kRank : kMaxRank];   // Σ_n a·w1k
  VF dt[kRank > 0 ? kRank : kMaxRank];  // gradient of t: Σ_m g·w2q
  VF du[kRank > 0 ? kRank : kMaxRank];  // gradient of u: Σ_m g·w2k
  for (int64_t r = 0; r < rank; ++r) t[r] = u[r] = dt[r] = du[r] = hn::Zero(d);
  for (int64_t n = 0; n < heads; ++n) {
    const VF x = hn::Load(d, a + n * lanes);
    const VF y = hn::Load(d, g + n * lanes);
    for (int64_t r = 0; r < rank; ++r) {
      if (query != nullptr) {
        t[r] = hn::MulAdd(x, hn::Set(d, query[r * heads + n]), t[r]);
        dt[r] = hn::MulAdd(y, hn::Set(d, query[w2 + r * heads + n]), dt[r]);
      }
      if (key != nullptr) {
        u[r] = hn::MulAdd(x, LoadF(key + (r * heads + n) * kPanel), u[r]);
        du[r] = hn::MulAdd(y, LoadF(key + (w2 + r * heads + n) * kPanel), du[r]);
      }
    }
  }
  for (int64_t n = 0; n < heads; ++n) {
    const VF x = hn::Load(d, a + n * lanes);
    const VF y = hn::Load(d, g + n * lanes);
    VF dx = y;
    const VF product = hn::Mul(x, y);
    if (query != nullptr) {
      dx = hn::MulAdd(y, hn::Set(d, query[gate + n]), dx);
      AddTo(product, dquery + (gate + n) * kMaxLanes);
      for (int64_t r = 0; r < rank; ++r) {
        dx = hn::MulAdd(dt[r], hn::Set(d, query[r * heads + n]), dx);
        AddTo(hn::Mul(x, dt[r]), dquery + (r * heads + n) * kMaxLanes);
        AddTo(hn::Mul(y, t[r]), dquery + (w2 + r * heads + n) * kMaxLanes);
      }
    }
    if (key != nullptr) {
      dx = hn::MulAdd(y, LoadF(key + (gate + n) * kPanel), dx);
      AddTo(product, dkey + (gate + n) * kPanel);
      for (int64_t r = 0; r < rank; ++r) {
        dx = hn::MulAdd(du[r], LoadF(key + (r * heads + n) * kPanel), dx);
        AddTo(hn::Mul(x, du[r]), dkey + (r * heads + n) * kPanel);
        AddTo(hn::Mul(y, u[r]), dkey + (w2 + r * heads + n) * kPanel);
      }
    }
    if (base != nullptr)
      for (int64_t m = 0; m < heads; ++m) {
        const VF ym = hn::Load(d, g + m * lanes);
        dx = hn::MulAdd(ym, hn::Set(d, base[n * heads + m]), dx);
        AddTo(hn::Mul(x, ym), dbase + (n * heads + m) * kMaxLanes);
      }
    StoreF(dx, d_tile.at(n, row) + column);
  }
}

void ComposePanelBackward(const PanelTile& in, const PanelTile& d_tile, int64_t rows,
                          const MixSizes& s, const MixWeights& w, const float* key, float* dquery,
                          float* dkey, float* dbase) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float a[kMaxGroupHeads * kMaxLanes];
  HWY_ALIGN float g[kMaxGroupHeads * kMaxLanes];
  for (int64_t c = 0; c < kPanel; c += lanes)
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t m = 0; m < s.heads; ++m) {
        hn::Store(LoadF(in.at(m, row) + c), d, a + m * lanes);
        hn::Store(LoadF(d_tile.at(m, row) + c), d, g + m * lanes);
      }
      const bool has_query = w.query != nullptr;
      const float* query = has_query ? w.query + row * s.block() : nullptr;
      float* dquery_row = has_query ? dquery + row * s.block() * kMaxLanes : nullptr;
      const float* key_columns = key == nullptr ? nullptr : key + c;
      float* dkey_columns = key == nullptr ? nullptr : dkey + c;
      if (s.rank == 2) {
        MixBackward<2>(a, g, d_tile, row, c, s, query, key_columns, w.base, dquery_row,
                       dkey_columns, dbase);
      } else {
        MixBackward<0>(a, g, d_tile, row, c, s, query, key_columns, w.base, dquery_row,
                       dkey_columns, dbase);
      }
    }
}

constexpr float kHidden = -std::numeric_limits<float>::infinity();

void SoftmaxPanel(float* x, int64_t rows, float* maximum, float* sums, float* reference) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, x += kPanel, sums += kMaxLanes) {
    VF top = LoadF(x);
    for (int64_t j = lanes; j < kPanel; j += lanes) top = hn::Max(top, LoadF(x + j));
    const float before = maximum[row];
    const float m = std::max(before, hn::GetLane(hn::MaxOfLanes(d, top)));
    maximum[row] = reference[row] = m;
    if (m > before) {
      const VF factor = Exp(hn::Set(d, before - m));
      for (int64_t l = 0; l < kMaxLanes; l += lanes)
        StoreF(hn::Mul(LoadF(sums + l), factor), sums + l);
    }
    const VF shift = hn::Set(d, m == kHidden ? 0.0f : m);
    for (int64_t j = 0; j < kPanel; j += lanes) {
      const VF e = Exp(hn::Sub(LoadF(x + j), shift));
      StoreF(e, x + j);
      float* sum = sums + j % kMaxLanes;
      StoreF(hn::Add(LoadF(sum), e), sum);
    }
  }
}

void SoftmaxFinish(int64_t n, float* maximum, const float* sums, float* inverse_sum) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t i = 0; i < n; ++i) {
    VF sum = LoadF(sums + i * kMaxLanes);
    for (int64_t l = lanes; l < kMaxLanes; l += lanes)
      sum = hn::Add(sum, LoadF(sums + i * kMaxLanes + l));
    const float total = Sum(sum);
    if (maximum[i] == kHidden) maximum[i] = 0;
    inverse_sum[i] = total > 0 ? 1.0f / total : 0.0f;
  }
}

void SoftmaxScales(int64_t n, const float* reference, const float* maximum,
                   const float* inverse_sum, float* scale) {
  ForVectors(n, [&](int64_t i, int64_t count) {
    const VF e = Exp(hn::Sub(LoadN(reference + i, count), LoadN(maximum + i, count)));
    StoreN(hn::Mul(e, LoadN(inverse_sum + i, count)), scale + i, count);
  });
}

void SoftmaxPanelKnown(float* x, int64_t rows, const float* maximum, const float* inverse_sum) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, x += kPanel) {
    const VF shift = hn::Set(d, maximum[row]);
    const VF scale = hn::Set(d, inverse_sum[row]);
    for (int64_t j = 0; j < kPanel; j += lanes)
      StoreF(hn::Mul(Exp(hn::Sub(LoadF(x + j), shift)), scale), x + j);
  }
}

void SoftmaxPanelDot(const float* p, const float* g, int64_t rows, float* sums) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t row = 0; row < rows; ++row, sums += kMaxLanes)
    for (int64_t j = 0; j < kPanel; j += lanes) {
      float* sum = sums + j % kMaxLanes;
      const int64_t i = row * kPanel + j;
      StoreF(hn::MulAdd(LoadF(p + i), LoadF(g + i), LoadF(sum)), sum);
    }
}

void SoftmaxPanelBackward(const float* p, float* g, int64_t rows, const float* dot) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row) {
    const VF delta = hn::Set(d, dot[row]);
    for (int64_t j = row * kPanel; j < (row + 1) * kPanel; j += lanes)
      StoreF(hn::Mul(LoadF(p + j), hn::Sub(LoadF(g + j), delta)), g + j);
  }
}

void RoundValues(float* x, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t j = 0; j < n; j += lanes) StoreF(RoundToBFloat16(LoadF(x + j)), x + j);
}

void ReduceLanes(const float* x, int64_t n, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t i = 0; i < n; ++i) {
    VF sum = LoadF(x + i * kMaxLanes);
    for (int64_t l = lanes; l < kMaxLanes; l += lanes)
      sum = hn::Add(sum, LoadF(x + i * kMaxLanes + l));
    out[i] = Sum(sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer::attention {

HWY_EXPORT(ComposePanelF32);
HWY_EXPORT(ComposePanelBf16);
HWY_EXPORT(ComposePanelBackward);
HWY_EXPORT(SoftmaxPanel);
HWY_EXPORT(SoftmaxFinish);
HWY_EXPORT(SoftmaxScales);
HWY_EXPORT(SoftmaxPanelKnown);
HWY_EXPORT(SoftmaxPanelDot);
HWY_EXPORT(SoftmaxPanelBackward);
HWY_EXPORT(RoundValues);
HWY_EXPORT(ReduceLanes);

template <>
void compose_panel(const PanelTile& in, const PanelTile& out, int64_t rows, const MixSizes& s,
                   const MixWeights& w, const float* key, const float* row_scale) {
  HWY_DYNAMIC_DISPATCH(ComposePanelF32)(in, out, rows, s, w, key, row_scale);
}
template <>
void compose_panel(const PanelTile& in, const PanelTile& out, int64_t rows, const MixSizes& s,
                   const MixWeights& w, const BFloat16* key, const float* row_scale) {
  HWY_DYNAMIC_DISPATCH(ComposePanelBf16)(in, out, rows, s, w, key, row_scale);
}
void compose_panel_backward(const PanelTile& in, const PanelTile& d, int64_t rows,
                            const MixSizes& s, const MixWeights& w, const float* key, float* dquery,
                            float* dkey, float* dbase) {
  HWY_DYNAMIC_DISPATCH(ComposePanelBackward)(in, d, rows, s, w, key, dquery, dkey, dbase);
}
void softmax_panel(float* x, int64_t rows, float* maximum, float* sums, float* reference) {
  HWY_DYNAMIC_DISPATCH(SoftmaxPanel)(x, rows, maximum, sums, reference);
}
void softmax_finish(int64_t n, float* maximum, const float* sums, float* inverse_sum) {
  HWY_DYNAMIC_DISPATCH(SoftmaxFinish)(n, maximum, sums, inverse_sum);
}
void softmax_scales(int64_t n, const float* reference, const float* maximum,
                    const float* inverse_sum, float* scale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxScales)(n, reference, maximum, inverse_sum, scale);
}
void softmax_panel_known(float* x, int64_t rows, const float* maximum, const float* inverse_sum) {
  HWY_DYNAMIC_DISPATCH(SoftmaxPanelKnown)(x, rows, maximum, inverse_sum);
}
void softmax_panel_dot(const float* p, const float* d, int64_t rows, float* sums) {
  HWY_DYNAMIC_DISPATCH(SoftmaxPanelDot)(p, d, rows, sums);
}
void softmax_panel_backward(const float* p, float* d, int64_t rows, const float* dot) {
  HWY_DYNAMIC_DISPATCH(SoftmaxPanelBackward)(p, d, rows, dot);
}
void round_values(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(RoundValues)(x, n); }
void reduce_lanes(const float* x, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ReduceLanes)(x, n, out);
}

}  // namespace dcformer::attention
#endif
