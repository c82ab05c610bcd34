#include <algorithm>
#include <type_traits>

#include "dcformer/ops/composed_attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dcformer/ops/composed_attention_products_cpu.cc"
#include <hwy/foreach_target.h>
// The order matters: foreach_target before the helpers.
#include "dcformer/ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dcformer {
namespace attention {
namespace HWY_NAMESPACE {
using namespace dcformer::HWY_NAMESPACE;  // NOLINT: the helpers of the same target

constexpr int kLanes = kVectorLanes;
constexpr int kVectors = kPanel / kLanes;
constexpr int kHalfVectors = kVectors / 2;
// Rows that a tile of accumulators holds: with 2 (AVX-512) or 4 (AVX2) vectors a row, what fits the
// registers beside the operands. They divide a band.
constexpr int kRows = kLanes == 16 ? 8 : 2;
// Rows or keys of a tile whose other side are up to kMostColumns vectors of head_dim.
constexpr int kTile = kLanes == 16 ? 4 : 2;
constexpr int kMostColumns = kLanes == 16 ? 5 : 4;

template <int kR, typename T>
HWY_INLINE void ScoresTile(const float* q, int64_t q_stride, int64_t head_dim, const T* k,
                           const HeadSquares& scores, int64_t row) {
  VF sum[kR][kVectors];
  for (int r = 0; r < kR; ++r)
    for (int c = 0; c < kVectors; ++c) sum[r][c] = hn::Zero(DF());
  for (int64_t d = 0; d < head_dim; ++d) {
    VF key[kVectors];
    for (int c = 0; c < kVectors; ++c) key[c] = LoadF(k + d * kPanel + c * kLanes);
    for (int r = 0; r < kR; ++r) {
      const VF x = hn::Set(DF(), q[r * q_stride + d]);
      for (int c = 0; c < kVectors; ++c) sum[r][c] = hn::MulAdd(x, key[c], sum[r][c]);
    }
  }
  for (int c = 0; c < kVectors; ++c) {
    float* to = scores.at(row, c / kHalfVectors) + c % kHalfVectors * kLanes;
    for (int r = 0; r < kR; ++r) StoreF(sum[r][c], to + r * kSide);
  }
}

template <typename T>
HWY_INLINE void PanelScores(const float* q, int64_t q_stride, int64_t head_dim, const T* k,
                            const HeadSquares& scores) {
  int64_t r = 0;
  for (; r + kRows <= scores.rows; r += kRows)
    ScoresTile<kRows>(q + r * q_stride, q_stride, head_dim, k, scores, r);
  for (; r < scores.rows; ++r) ScoresTile<1>(q + r * q_stride, q_stride, head_dim, k, scores, r);
}
void PanelScoresF32(const float* q, int64_t q_stride, int64_t head_dim, const float* k,
                    const HeadSquares& scores) {
  PanelScores(q, q_stride, head_dim, k, scores);
}
void PanelScoresBf16(const float* q, int64_t q_stride, int64_t head_dim, const BFloat16* k,
                     const HeadSquares& scores) {
  PanelScores(q, q_stride, head_dim, k, scores);
}

// Calls f(half, first, end) for the halves of a panel that [begin, end) meets, in keys of the half.
template <typename F>
HWY_INLINE void ForHalves(int64_t begin, int64_t end, F&& f) {
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t first = std::max<int64_t>(begin - half * kSide, 0);
    const int64_t last = std::min<int64_t>(end - half * kSide, kSide);
    if (first < last) f(half, first, last);
  }
}

// Calls f(columns, c) for a width in groups of vectors: as many of kMostColumns as there are, then
// what is left as one group. `columns` is a compile-time number.
template <typename F>
HWY_INLINE void ForColumnGroups(int64_t width, F&& f) {
  int64_t c = 0;
  for (; c + kMostColumns * kLanes <= width; c += kMostColumns * kLanes)
    f(std::integral_constant<int, kMostColumns>(), c);
  switch ((width - c) / kLanes) {
    case 1:
      f(std::integral_constant<int, 1>(), c);
      break;
    case 2:
      f(std::integral_constant<int, 2>(), c);
      break;
    case 3:
      f(std::integral_constant<int, 3>(), c);
      break;
    case 4:
      f(std::integral_constant<int, 4>(), c);
      break;
    default:
      break;
  }
}

// kR rows by kC vectors of the output stay in registers while j runs through the panel.
template <int kR, int kC, typename T>
HWY_INLINE void ValuesTile(const HeadSquares& a, int64_t row, const T* v, int64_t width,
                           int64_t begin, int64_t end, float* o, int64_t o_stride) {
  VF sum[kR][kC];
  for (int r = 0; r < kR; ++r)
    for (int c = 0; c < kC; ++c) sum[r][c] = LoadF(o + r * o_stride + c * kLanes);
  ForHalves(begin, end, [&](int64_t half, int64_t first, int64_t last) HWY_ATTR {
    const float* weight = a.at(row, half);
    for (int64_t j = first; j < last; ++j) {
      VF value[kC];
      for (int c = 0; c < kC; ++c) value[c] = LoadF(v + (half * kSide + j) * width + c * kLanes);
      for (int r = 0; r < kR; ++r) {
        const VF x = hn::Set(DF(), weight[r * kSide + j]);
        for (int c = 0; c < kC; ++c) sum[r][c] = hn::MulAdd(x, value[c], sum[r][c]);
      }
    }
  });
  for (int r = 0; r < kR; ++r)
    for (int c = 0; c < kC; ++c) StoreF(sum[r][c], o + r * o_stride + c * kLanes);
}

template <typename T>
HWY_INLINE void PanelValues(const HeadSquares& a, const T* v, int64_t width, int64_t begin,
                            int64_t end, float* o, int64_t o_stride) {
  ForColumnGroups(width, [&](auto columns, int64_t c) HWY_ATTR {
    constexpr int kC = decltype(columns)::value;
    int64_t r = 0;
    for (; r + kTile <= a.rows; r += kTile)
      ValuesTile<kTile, kC>(a, r, v + c, width, begin, end, o + r * o_stride + c, o_stride);
    for (; r < a.rows; ++r)
      ValuesTile<1, kC>(a, r, v + c, width, begin, end, o + r * o_stride + c, o_stride);
  });
}
void PanelValuesF32(const HeadSquares& a, const float* v, int64_t width, int64_t begin, int64_t end,
                    float* o, int64_t o_stride) {
  PanelValues(a, v, width, begin, end, o, o_stride);
}
void PanelValuesBf16(const HeadSquares& a, const BFloat16* v, int64_t width, int64_t begin,
                     int64_t end, float* o, int64_t o_stride) {
  PanelValues(a, v, width, begin, end, o, o_stride);
}

// kJ keys by kC vectors of the gradient stay in registers while the rows run.
template <int kJ, int kC>
HWY_INLINE void OuterTile(const HeadSquares& a, int64_t half, int64_t key, const float* x,
                          int64_t x_stride, int64_t width, float* g) {
  VF sum[kJ][kC];
  for (int j = 0; j < kJ; ++j)
    for (int c = 0; c < kC; ++c) sum[j][c] = LoadF(g + j * width + c * kLanes);
  for (int64_t first = 0; first < a.rows; first += kSide) {
    const float* weights = a.at(first, half) + key;
    const int64_t count = std::min(kSide, a.rows - first);
    for (int64_t r = 0; r < count; ++r) {
      VF value[kC];
      for (int c = 0; c < kC; ++c) value[c] = LoadF(x + (first + r) * x_stride + c * kLanes);
      for (int j = 0; j < kJ; ++j) {
        const VF weight = hn::Set(DF(), weights[r * kSide + j]);
        for (int c = 0; c < kC; ++c) sum[j][c] = hn::MulAdd(weight, value[c], sum[j][c]);
      }
    }
  }
  for (int j = 0; j < kJ; ++j)
    for (int c = 0; c < kC; ++c) StoreF(sum[j][c], g + j * width + c * kLanes);
}

void PanelOuter(const HeadSquares& a, const float* x, int64_t x_stride, int64_t width,
                int64_t begin, int64_t end, float* g) {
  ForColumnGroups(width, [&](auto columns, int64_t c) HWY_ATTR {
    constexpr int kC = decltype(columns)::value;
    ForHalves(begin, end, [&](int64_t half, int64_t first, int64_t last) HWY_ATTR {
      float* to = g + half * kSide * width + c;
      int64_t j = first;
      for (; j + kTile <= last; j += kTile)
        OuterTile<kTile, kC>(a, half, j, x + c, x_stride, width, to + j * width);
      for (; j < last; ++j) OuterTile<1, kC>(a, half, j, x + c, x_stride, width, to + j * width);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace dcformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dcformer::attention {

HWY_EXPORT(PanelScoresF32);
HWY_EXPORT(PanelScoresBf16);
HWY_EXPORT(PanelValuesF32);
HWY_EXPORT(PanelValuesBf16);
HWY_EXPORT(PanelOuter);

template <>
void panel_scores(const float* q, int64_t q_stride, int64_t head_dim, const float* k,
                  const HeadSquares& scores) {
  HWY_DYNAMIC_DISPATCH(PanelScoresF32)(q, q_stride, head_dim, k, scores);
}
template <>
void panel_scores(const float* q, int64_t q_stride, int64_t head_dim, const BFloat16* k,
                  const HeadSquares& scores) {
  HWY_DYNAMIC_DISPATCH(PanelScoresBf16)(q, q_stride, head_dim, k, scores);
}
template <>
void panel_values(const HeadSquares& a, const float* v, int64_t width, int64_t begin, int64_t end,
                  float* o, int64_t o_stride) {
  HWY_DYNAMIC_DISPATCH(PanelValuesF32)(a, v, width, begin, end, o, o_stride);
}
template <>
void panel_values(const HeadSquares& a, const BFloat16* v, int64_t width, int64_t begin,
                  int64_t end, float* o, int64_t o_stride) {
  HWY_DYNAMIC_DISPATCH(PanelValuesBf16)(a, v, width, begin, end, o, o_stride);
}
void panel_outer(const HeadSquares& a, const float* x, int64_t x_stride, int64_t width,
                 int64_t begin, int64_t end, float* g) {
  HWY_DYNAMIC_DISPATCH(PanelOuter)(a, x, x_stride, width, begin, end, g);
}

}  // namespace dcformer::attention
#endif
