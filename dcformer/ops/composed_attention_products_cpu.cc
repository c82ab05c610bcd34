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

constexpr int kLanes = HWY_MAX_BYTES >= 64 && HWY_TARGET == HWY_AVX3 ? 16 : 8;
constexpr int kVectors = kPanel / kLanes;
// Rows that a tile of accumulators holds: with 2 (AVX-512) or 4 (AVX2) vectors a row, what fits the
// registers beside the operands.
constexpr int kRows = kLanes == 16 ? 8 : 2;

template <int kR, typename T>
HWY_INLINE void ScoresTile(const float* q, int64_t q_stride, int64_t head_dim, const T* k,
                           float* scores) {
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
  for (int r = 0; r < kR; ++r)
    for (int c = 0; c < kVectors; ++c) StoreF(sum[r][c], scores + r * kPanel + c * kLanes);
}

template <typename T>
HWY_INLINE void PanelScores(const float* q, int64_t rows, int64_t q_stride, int64_t head_dim,
                            const T* k, float* scores) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    ScoresTile<kRows>(q + r * q_stride, q_stride, head_dim, k, scores + r * kPanel);
  for (; r < rows; ++r) ScoresTile<1>(q + r * q_stride, q_stride, head_dim, k, scores + r * kPanel);
}
void PanelScoresF32(const float* q, int64_t rows, int64_t q_stride, int64_t head_dim,
                    const float* k, float* scores) {
  PanelScores(q, rows, q_stride, head_dim, k, scores);
}
void PanelScoresBf16(const float* q, int64_t rows, int64_t q_stride, int64_t head_dim,
                     const BFloat16* k, float* scores) {
  PanelScores(q, rows, q_stride, head_dim, k, scores);
}

// kR rows by kC vectors of the output stay in registers while j runs through the panel.
template <int kR, int kC, typename T>
HWY_INLINE void ValuesTile(const float* a, const T* v, int64_t width, int64_t begin, int64_t end,
                           float* o, int64_t o_stride) {
  VF sum[kR][kC];
  for (int r = 0; r < kR; ++r)
    for (int c = 0; c < kC; ++c) sum[r][c] = LoadF(o + r * o_stride + c * kLanes);
  for (int64_t j = begin; j < end; ++j) {
    VF value[kC];
    for (int c = 0; c < kC; ++c) value[c] = LoadF(v + j * width + c * kLanes);
    for (int r = 0; r < kR; ++r) {
      const VF x = hn::Set(DF(), a[r * kPanel + j]);
      for (int c = 0; c < kC; ++c) sum[r][c] = hn::MulAdd(x, value[c], sum[r][c]);
    }
  }
  for (int r = 0; r < kR; ++r)
    for (int c = 0; c < kC; ++c) StoreF(sum[r][c], o + r * o_stride + c * kLanes);
}

template <int kC, typename T>
HWY_INLINE void ValuesColumns(const float* a, int64_t rows, const T* v, int64_t width,
                              int64_t begin, int64_t end, float* o, int64_t o_stride) {
  constexpr int kTile = kLanes == 16 ? 4 : 2;
  int64_t r = 0;
  for (; r + kTile <= rows; r += kTile)
    ValuesTile<kTile, kC>(a + r * kPanel, v, width, begin, end, o + r * o_stride, o_stride);
  for (; r < rows; ++r)
    ValuesTile<1, kC>(a + r * kPanel, v, width, begin, end, o + r * o_stride, o_stride);
}

template <typename T>
HWY_INLINE void PanelValues(const float* a, int64_t rows, const T* v, int64_t width, int64_t begin,
                            int64_t end, float* o, int64_t o_stride) {
  constexpr int64_t kWide = 4 * kLanes;
  int64_t c = 0;
  for (; c + kWide <= width; c += kWide)
    ValuesColumns<4>(a, rows, v + c, width, begin, end, o + c, o_stride);
  for (; c < width; c += kLanes)
    ValuesColumns<1>(a, rows, v + c, width, begin, end, o + c, o_stride);
}
void PanelValuesF32(const float* a, int64_t rows, const float* v, int64_t width, int64_t begin,
                    int64_t end, float* o, int64_t o_stride) {
  PanelValues(a, rows, v, width, begin, end, o, o_stride);
}
void PanelValuesBf16(const float* a, int64_t rows, const BFloat16* v, int64_t width, int64_t begin,
                     int64_t end, float* o, int64_t o_stride) {
  PanelValues(a, rows, v, width, begin, end, o, o_stride);
}

// kJ keys by kC vectors of the gradient stay in registers while the rows run.
template <int kJ, int kC>
HWY_INLINE void OuterTile(const float* a, int64_t rows, const float* x, int64_t x_stride,
                          int64_t width, float* g) {
  VF sum[kJ][kC];
  for (int j = 0; j < kJ; ++j)
    for (int c = 0; c < kC; ++c) sum[j][c] = LoadF(g + j * width + c * kLanes);
  for (int64_t r = 0; r < rows; ++r) {
    VF value[kC];
    for (int c = 0; c < kC; ++c) value[c] = LoadF(x + r * x_stride + c * kLanes);
    for (int j = 0; j < kJ; ++j) {
      const VF weight = hn::Set(DF(), a[r * kPanel + j]);
      for (int c = 0; c < kC; ++c) sum[j][c] = hn::MulAdd(weight, value[c], sum[j][c]);
    }
  }
  for (int j = 0; j < kJ; ++j)
    for (int c = 0; c < kC; ++c) StoreF(sum[j][c], g + j * width + c * kLanes);
}

template <int kC>
HWY_INLINE void OuterColumns(const float* a, int64_t rows, const float* x, int64_t x_stride,
                             int64_t width, int64_t begin, int64_t end, float* g) {
  constexpr int kTile = kLanes == 16 ? 4 : 2;
  int64_t j = begin;
  for (; j + kTile <= end; j += kTile)
    OuterTile<kTile, kC>(a + j, rows, x, x_stride, width, g + j * width);
  for (; j < end; ++j) OuterTile<1, kC>(a + j, rows, x, x_stride, width, g + j * width);
}

void PanelOuter(const float* a, int64_t rows, const float* x, int64_t x_stride, int64_t width,
                int64_t begin, int64_t end, float* g) {
  constexpr int64_t kWide = 4 * kLanes;
  int64_t c = 0;
  for (; c + kWide <= width; c += kWide)
    OuterColumns<4>(a, rows, x + c, x_stride, width, begin, end, g + c);
  for (; c < width; c += kLanes)
    OuterColumns<1>(a, rows, x + c, x_stride, width, begin, end, g + c);
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
void panel_scores(const float* q, int64_t rows, int64_t q_stride, int64_t head_dim, const float* k,
                  float* scores) {
  HWY_DYNAMIC_DISPATCH(PanelScoresF32)(q, rows, q_stride, head_dim, k, scores);
}
template <>
void panel_scores(const float* q, int64_t rows, int64_t q_stride, int64_t head_dim,
                  const BFloat16* k, float* scores) {
  HWY_DYNAMIC_DISPATCH(PanelScoresBf16)(q, rows, q_stride, head_dim, k, scores);
}
template <>
void panel_values(const float* a, int64_t rows, const float* v, int64_t width, int64_t begin,
                  int64_t end, float* o, int64_t o_stride) {
  HWY_DYNAMIC_DISPATCH(PanelValuesF32)(a, rows, v, width, begin, end, o, o_stride);
}
template <>
void panel_values(const float* a, int64_t rows, const BFloat16* v, int64_t width, int64_t begin,
                  int64_t end, float* o, int64_t o_stride) {
  HWY_DYNAMIC_DISPATCH(PanelValuesBf16)(a, rows, v, width, begin, end, o, o_stride);
}
void panel_outer(const float* a, int64_t rows, const float* x, int64_t x_stride, int64_t width,
                 int64_t begin, int64_t end, float* g) {
  HWY_DYNAMIC_DISPATCH(PanelOuter)(a, rows, x, x_stride, width, begin, end, g);
}

}  // namespace dcformer::attention
#endif
