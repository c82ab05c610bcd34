#include <algorithm>
#include <type_traits>

#include "dcformer/ops/composed_attention_kernels.h"

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

// One vector of columns of kRows rows of a band, for all heads: row r of head n lies at
// in + n·stride + r·16.
struct Columns {
  const float* in;
  // The gradients of the outputs, in a backward pass.
  const float* gradient;
  float* out;
  int64_t stride;
  // scales[n·scale_stride + r]
  const float* scales;
  int64_t scale_stride;
};

template <int kRows>
HWY_INLINE VF Input(const Columns& at, int64_t head, int r) {
  return hn::Mul(LoadF(at.in + head * at.stride + r * kSide),
                 hn::Set(DF(), at.scales[head * at.scale_stride + r]));
}

// The ranks in use as a compile-time number where it is the published 2, else as given.
template <int kRank>
struct Ranks {
  static constexpr int kMost = kRank > 0 ? kRank : static_cast<int>(kMaxRank);
  int64_t given;
  HWY_INLINE int64_t n() const { return kRank > 0 ? kRank : given; }
};

// What a mixing of kRows rows knows of all heads: t = Σ_n a·w1q and u = Σ_n a·w1k.
template <int kRows, int kRank>
using Sums = VF[kRows][Ranks<kRank>::kMost];

template <int kRows, int kRank>
HWY_INLINE void Clear(Sums<kRows, kRank>& sums) {
  for (auto& row : sums)
    for (VF& sum : row) sum = hn::Zero(DF());
}

// extra[n·kVectorLanes …] (or null) is what the base projection adds to head n's output; one row
// then.
template <int kRows, int kRank, bool kQuery, bool kKey, typename T>
HWY_INLINE void MixForward(const Columns& at, const MixSizes& s, const float* query, const T* key,
                           const float* extra) {
  const DF d;
  const int64_t heads = s.heads;
  const int64_t block = s.block();
  const Ranks<kRank> rank{s.rank};
  Sums<kRows, kRank> t;
  Sums<kRows, kRank> u;
  Clear<kRows, kRank>(t);
  Clear<kRows, kRank>(u);
  for (int64_t n = 0; n < heads; ++n) {
    VF x[kRows];
    for (int r = 0; r < kRows; ++r) x[r] = Input<kRows>(at, n, r);
    for (int64_t i = 0; i < rank.n(); ++i) {
      if constexpr (kQuery)
        for (int r = 0; r < kRows; ++r)
          t[r][i] = hn::MulAdd(x[r], hn::Set(d, query[r * block + i * heads + n]), t[r][i]);
      if constexpr (kKey) {
        const VF w = LoadF(key + (i * heads + n) * kPanel);
        for (int r = 0; r < kRows; ++r) u[r][i] = hn::MulAdd(x[r], w, u[r][i]);
      }
    }
  }
  const int64_t w2 = rank.n() * heads;
  const int64_t gate = 2 * w2;
  for (int64_t m = 0; m < heads; ++m) {
    VF y[kRows];
    for (int r = 0; r < kRows; ++r) {
      const VF x = Input<kRows>(at, m, r);
      y[r] = x;
      if constexpr (kQuery) y[r] = hn::MulAdd(x, hn::Set(d, query[r * block + gate + m]), y[r]);
      if constexpr (kKey) y[r] = hn::MulAdd(x, LoadF(key + (gate + m) * kPanel), y[r]);
    }
    for (int64_t i = 0; i < rank.n(); ++i) {
      if constexpr (kQuery)
        for (int r = 0; r < kRows; ++r)
          y[r] = hn::MulAdd(t[r][i], hn::Set(d, query[r * block + w2 + i * heads + m]), y[r]);
      if constexpr (kKey) {
        const VF w = LoadF(key + (w2 + i * heads + m) * kPanel);
        for (int r = 0; r < kRows; ++r) y[r] = hn::MulAdd(u[r][i], w, y[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if (extra != nullptr) y[r] = hn::Add(y[r], LoadF(extra + m * kVectorLanes));
      StoreF(y[r], at.out + m * at.stride + r * kSide);
    }
  }
}

// extra[m] = Σ_n a_n·base[n][m] for one row.
HWY_INLINE void BaseForward(const Columns& at, int64_t heads, const float* base, float* extra) {
  const DF d;
  for (int64_t m = 0; m < heads; ++m) StoreF(hn::Zero(d), extra + m * kVectorLanes);
  for (int64_t n = 0; n < heads; ++n) {
    const VF x = Input<1>(at, n, 0);
    for (int64_t m = 0; m < heads; ++m) {
      float* y = extra + m * kVectorLanes;
      StoreF(hn::MulAdd(x, hn::Set(d, base[n * heads + m]), LoadF(y)), y);
    }
  }
}

// Calls f(columns, row, half, column) for the vectors of a band, kRows rows at a time as long as
// there are as many, columns outside: the key weights of a vector of columns stay in the nearest
// cache for all rows.
template <int kRows, typename F1, typename F2>
HWY_INLINE void ForColumns(const Band& in, const Band& g, const Band& out, const RowScales& scales,
                           F1&& together, F2&& single) {
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t c = 0; c < kSide; c += kVectorLanes) {
      int64_t row = 0;
      const auto columns = [&](int64_t r) HWY_ATTR {
        const int64_t offset = r * kSide + c;
        return Columns{in.square(0, half) + offset,
                       g.square(0, half) + offset,
                       out.square(0, half) + offset,
                       in.square_numel(),
                       scales.data + r,
                       scales.head_stride};
      };
      for (; row + kRows <= in.rows; row += kRows) together(columns(row), row, half * kSide + c);
      for (; row < in.rows; ++row) single(columns(row), row, half * kSide + c);
    }
}

template <int kRank, bool kQuery, bool kKey, typename T>
HWY_INLINE void ComposeRows(const Band& in, const Band& out, const MixSizes& s, const MixWeights& w,
                            const T* key, const RowScales& scales) {
  const auto mix = [&](auto rows, const Columns& at, int64_t row, int64_t column,
                       const float* extra) HWY_ATTR {
    MixForward<decltype(rows)::value, kRank, kQuery, kKey>(
        at, s, kQuery ? w.query + row * s.block() : nullptr, kKey ? key + column : nullptr, extra);
  };
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  if (w.base != nullptr) {
    HWY_ALIGN float extra[kMaxGroupHeads * kVectorLanes];
    const auto one = [&](const Columns& at, int64_t row, int64_t column) HWY_ATTR {
      BaseForward(at, s.heads, w.base, extra);
      mix(One(), at, row, column, extra);
    };
    ForColumns<1>(in, in, out, scales, one, one);
    return;
  }
  ForColumns<2>(
      in, in, out, scales,
      [&](const Columns& at, int64_t row, int64_t column)
          HWY_ATTR { mix(Two(), at, row, column, nullptr); },
      [&](const Columns& at, int64_t row, int64_t column)
          HWY_ATTR { mix(One(), at, row, column, nullptr); });
}

// Where nothing is mixed: a scaled copy.
HWY_INLINE void ScaleBand(const Band& in, const Band& out, const RowScales& scales) {
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t m = 0; m < in.heads; ++m)
      for (int64_t row = 0; row < in.rows; ++row) {
        const VF scale = hn::Set(DF(), scales.data[m * scales.head_stride + row]);
        for (int64_t c = row * kSide; c < (row + 1) * kSide; c += kVectorLanes)
          StoreF(hn::Mul(LoadF(in.square(m, half) + c), scale), out.square(m, half) + c);
      }
}

// Calls f with the sides that are on, and the rank, as compile-time numbers.
template <typename F>
HWY_INLINE void VisitSides(bool query, bool key, int64_t rank, F&& f) {
  const auto with_sides = [&](auto ranks) HWY_ATTR {
    if (query && key) {
      f(ranks, std::true_type(), std::true_type());
    } else if (query) {
      f(ranks, std::true_type(), std::false_type());
    } else if (key) {
      f(ranks, std::false_type(), std::true_type());
    } else {
      f(ranks, std::false_type(), std::false_type());
    }
  };
  if (rank == 2) {
    with_sides(std::integral_constant<int, 2>());
  } else {
    with_sides(std::integral_constant<int, 0>());
  }
}

template <typename T>
HWY_INLINE void ComposeBand(const Band& in, const Band& out, const MixSizes& s, const MixWeights& w,
                            const T* key, const RowScales& scales) {
  if (w.query == nullptr && key == nullptr && w.base == nullptr) {
    ScaleBand(in, out, scales);
    return;
  }
  VisitSides(
      w.query != nullptr, key != nullptr, s.rank,
      [&](auto rank, auto has_query, auto has_key) HWY_ATTR {
        ComposeRows<decltype(rank)::value, decltype(has_query)::value, decltype(has_key)::value>(
            in, out, s, w, key, scales);
      });
}
void ComposeBandF32(const Band& in, const Band& out, const MixSizes& s, const MixWeights& w,
                    const float* key, const RowScales& scales) {
  ComposeBand(in, out, s, w, key, scales);
}
void ComposeBandBf16(const Band& in, const Band& out, const MixSizes& s, const MixWeights& w,
                     const BFloat16* key, const RowScales& scales) {
  ComposeBand(in, out, s, w, key, scales);
}

// What the gradients of kRows rows know of all heads, as t and u of the forward pass: dt = Σ_m
// g·w2q and du = Σ_m g·w2k.
template <int kRows, int kRank>
struct BackwardSums {
  Sums<kRows, kRank> t, u, dt, du;
};

template <int kRows, int kRank, bool kQuery, bool kKey>
HWY_INLINE void SumHeads(const Columns& at, const MixSizes& s, const float* query, const float* key,
                         BackwardSums<kRows, kRank>& sums) {
  const DF d;
  const int64_t heads = s.heads;
  const int64_t block = s.block();
  const Ranks<kRank> rank{s.rank};
  const int64_t w2 = rank.n() * heads;
  Clear<kRows, kRank>(sums.t);
  Clear<kRows, kRank>(sums.u);
  Clear<kRows, kRank>(sums.dt);
  Clear<kRows, kRank>(sums.du);
  for (int64_t n = 0; n < heads; ++n) {
    VF x[kRows];
    VF y[kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = Input<kRows>(at, n, r);
      y[r] = LoadF(at.gradient + n * at.stride + r * kSide);
    }
    for (int64_t i = 0; i < rank.n(); ++i) {
      const int64_t w = i * heads + n;
      if constexpr (kQuery)
        for (int r = 0; r < kRows; ++r) {
          const float* own = query + r * block + w;
          sums.t[r][i] = hn::MulAdd(x[r], hn::Set(d, own[0]), sums.t[r][i]);
          sums.dt[r][i] = hn::MulAdd(y[r], hn::Set(d, own[w2]), sums.dt[r][i]);
        }
      if constexpr (kKey) {
        const VF w1 = LoadF(key + w * kPanel);
        const VF w2k = LoadF(key + (w2 + w) * kPanel);
        for (int r = 0; r < kRows; ++r) {
          sums.u[r][i] = hn::MulAdd(x[r], w1, sums.u[r][i]);
          sums.du[r][i] = hn::MulAdd(y[r], w2k, sums.du[r][i]);
        }
      }
    }
  }
}

// p += Σ_r a[r]·b[r].
template <int kRows>
HWY_INLINE void AddProducts(const VF* a, const VF* b, float* p) {
  VF sum = LoadF(p);
  for (int r = 0; r < kRows; ++r) sum = hn::MulAdd(a[r], b[r], sum);
  StoreF(sum, p);
}

// The query side's gradients of one row for as many heads as a vector has lanes, before their sum
// over columns: of weight i and head n in products[(i·kVectorLanes + n)·kVectorLanes …].
HWY_INLINE void AddQueryGradients(float* products, int64_t n_weight, int64_t heads, int64_t first,
                                  float* dquery) {
  const int64_t count = std::min<int64_t>(kVectorLanes, heads - first);
  for (int64_t i = 0; i < n_weight; ++i) {
    VF v[kVectorLanes];
    for (int64_t n = 0; n < kVectorLanes; ++n)
      v[n] = n < count ? LoadF(products + (i * kVectorLanes + n) * kVectorLanes) : hn::Zero(DF());
    float* to = dquery + i * heads + first;
    StoreN(hn::Add(LoadN(to, count), SumEach(v)), to, count);
  }
}

// The gradient of MixForward: at.out gets the gradients of the inputs. extra: what the base
// projection adds to them, of one row, or null.
template <int kRows, int kRank, bool kQuery, bool kKey>
HWY_INLINE void MixBackward(const Columns& at, const MixSizes& s, const float* query,
                            const float* key, const float* extra, float* dquery, float* dkey) {
  const DF d;
  const int64_t heads = s.heads;
  const int64_t block = s.block();
  const Ranks<kRank> rank{s.rank};
  const int64_t w2 = rank.n() * heads;
  const int64_t gate = 2 * w2;
  BackwardSums<kRows, kRank> sums;
  SumHeads<kRows, kRank, kQuery, kKey>(at, s, query, key, sums);
  constexpr int kWeights = 2 * Ranks<kRank>::kMost + 1;
  HWY_ALIGN float products[kQuery ? kRows * kWeights * kVectorLanes * kVectorLanes : 1];
  const auto product = [&](int r, int64_t i, int64_t n) HWY_ATTR {
    return products + ((r * kWeights + i) * kVectorLanes + n % kVectorLanes) * kVectorLanes;
  };
  for (int64_t n = 0; n < heads; ++n) {
    VF x[kRows];
    VF y[kRows];
    VF dx[kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = Input<kRows>(at, n, r);
      y[r] = dx[r] = LoadF(at.gradient + n * at.stride + r * kSide);
      if constexpr (kQuery) {
        dx[r] = hn::MulAdd(y[r], hn::Set(d, query[r * block + gate + n]), dx[r]);
        StoreF(hn::Mul(x[r], y[r]), product(r, 2 * rank.n(), n));
      }
      if constexpr (kKey) dx[r] = hn::MulAdd(y[r], LoadF(key + (gate + n) * kPanel), dx[r]);
    }
    if constexpr (kKey) AddProducts<kRows>(x, y, dkey + (gate + n) * kPanel);
    for (int64_t i = 0; i < rank.n(); ++i) {
      const int64_t w = i * heads + n;
      VF du[kRows];
      VF u[kRows];
      for (int r = 0; r < kRows; ++r) {
        if constexpr (kQuery) {
          dx[r] = hn::MulAdd(sums.dt[r][i], hn::Set(d, query[r * block + w]), dx[r]);
          StoreF(hn::Mul(x[r], sums.dt[r][i]), product(r, i, n));
          StoreF(hn::Mul(y[r], sums.t[r][i]), product(r, rank.n() + i, n));
        }
        if constexpr (kKey) {
          du[r] = sums.du[r][i];
          u[r] = sums.u[r][i];
          dx[r] = hn::MulAdd(du[r], LoadF(key + w * kPanel), dx[r]);
        }
      }
      if constexpr (kKey) {
        AddProducts<kRows>(x, du, dkey + w * kPanel);
        AddProducts<kRows>(y, u, dkey + (w2 + w) * kPanel);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if (extra != nullptr) dx[r] = hn::Add(dx[r], LoadF(extra + n * kVectorLanes));
      StoreF(dx[r], at.out + n * at.stride + r * kSide);
    }
    if constexpr (kQuery)
      if ((n + 1) % kVectorLanes == 0 || n + 1 == heads)
        for (int r = 0; r < kRows; ++r)
          AddQueryGradients(product(r, 0, 0), 2 * rank.n() + 1, heads,
                            n / kVectorLanes * kVectorLanes, dquery + r * block);
  }
}

// extra[n] = Σ_m base[n][m]·g_m and dbase[n][m] += a_n·g_m for one row.
HWY_INLINE void BaseBackward(const Columns& at, int64_t heads, const float* base, float* extra,
                             float* dbase) {
  const DF d;
  for (int64_t n = 0; n < heads; ++n) {
    const VF x = Input<1>(at, n, 0);
    VF dx = hn::Zero(d);
    for (int64_t m = 0; m < heads; ++m) {
      const VF y = LoadF(at.gradient + m * at.stride);
      dx = hn::MulAdd(y, hn::Set(d, base[n * heads + m]), dx);
      float* to = dbase + (n * heads + m) * kSide;
      StoreF(hn::MulAdd(x, y, LoadF(to)), to);
    }
    StoreF(dx, extra + n * kVectorLanes);
  }
}

template <int kRank, bool kQuery, bool kKey>
HWY_INLINE void ComposeRowsBackward(const Band& in, const Band& g, const Band& d_in,
                                    const MixSizes& s, const MixWeights& w, const float* key,
                                    const RowScales& scales, float* dquery, float* dkey,
                                    float* dbase) {
  const int64_t block = s.block();
  const auto mix = [&](auto rows, const Columns& at, int64_t row, int64_t column,
                       const float* extra) HWY_ATTR {
    MixBackward<decltype(rows)::value, kRank, kQuery, kKey>(
        at, s, kQuery ? w.query + row * block : nullptr, kKey ? key + column : nullptr, extra,
        kQuery ? dquery + row * block : nullptr, kKey ? dkey + column : nullptr);
  };
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  if (w.base != nullptr) {
    HWY_ALIGN float extra[kMaxGroupHeads * kVectorLanes];
    const auto one = [&](const Columns& at, int64_t row, int64_t column) HWY_ATTR {
      BaseBackward(at, s.heads, w.base, extra, dbase);
      mix(One(), at, row, column, extra);
    };
    ForColumns<1>(in, g, d_in, scales, one, one);
    return;
  }
  ForColumns<2>(
      in, g, d_in, scales,
      [&](const Columns& at, int64_t row, int64_t column)
          HWY_ATTR { mix(Two(), at, row, column, nullptr); },
      [&](const Columns& at, int64_t row, int64_t column)
          HWY_ATTR { mix(One(), at, row, column, nullptr); });
}

void ComposeBandBackward(const Band& in, const Band& g, const Band& d_in, const MixSizes& s,
                         const MixWeights& w, const float* key, const RowScales& scales,
                         float* dquery, float* dkey, float* dbase) {
  VisitSides(w.query != nullptr, key != nullptr, s.rank,
             [&](auto rank, auto has_query, auto has_key) HWY_ATTR {
               ComposeRowsBackward<decltype(rank)::value, decltype(has_query)::value,
                                   decltype(has_key)::value>(in, g, d_in, s, w, key, scales, dquery,
                                                             dkey, dbase);
             });
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer::attention {

HWY_EXPORT(ComposeBandF32);
HWY_EXPORT(ComposeBandBf16);
HWY_EXPORT(ComposeBandBackward);

template <>
void compose_band(const Band& in, const Band& out, const MixSizes& s, const MixWeights& w,
                  const float* key, const RowScales& scales) {
  HWY_DYNAMIC_DISPATCH(ComposeBandF32)(in, out, s, w, key, scales);
}
template <>
void compose_band(const Band& in, const Band& out, const MixSizes& s, const MixWeights& w,
                  const BFloat16* key, const RowScales& scales) {
  HWY_DYNAMIC_DISPATCH(ComposeBandBf16)(in, out, s, w, key, scales);
}
void compose_band_backward(const Band& in, const Band& d, const Band& d_in, const MixSizes& s,
                           const MixWeights& w, const float* key, const RowScales& scales,
                           float* dquery, float* dkey, float* dbase) {
  HWY_DYNAMIC_DISPATCH(ComposeBandBackward)(in, d, d_in, s, w, key, scales, dquery, dkey, dbase);
}

}  // namespace dcformer::attention
#endif
