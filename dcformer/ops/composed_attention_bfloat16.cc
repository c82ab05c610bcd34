#include "dcformer/ops/composed_attention_bfloat16.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "dcformer/base/isa.h"
#include "dcformer/ops/composed_attention_bfloat16_units.h"
#include "dcformer/ops/composed_attention_kernels.h"

namespace dcformer::attention {
namespace {

// The products of one head's block with a panel, timed: the least of many runs, since other work on
// the machine only ever makes it longer.
constexpr int64_t kDepth = 128;
constexpr int64_t kHeight = 64;
constexpr int kRounds = 200;

template <typename F>
double least_seconds(F&& f) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    least = std::min(least, taken.count());
  }
  return least;
}

// Some processors run bf16 dot products at half the rate of f32. With a margin, so that a choice
// once made is made again.
bool dot_products_pay() {
  const std::vector<float> q(kHeight * kDepth);
  const std::vector<float> k(kDepth * kPanel);
  std::vector<float> scores(kHeight * kPanel);
  const HeadSquares squares{scores.data(), kHeight, kSide * kPanel, kSide * kSide};
  const double f32 =
      least_seconds([&] { panel_scores<float>(q.data(), kDepth, kDepth, k.data(), squares); });
  const std::vector<BFloat16> a(kHeight * kDepth, BFloat16(0.0f));
  const std::vector<BFloat16> b(kDepth * kPanel, BFloat16(0.0f));
  const TileProduct product{a.data(),
                            kSide * kDepth,
                            32,
                            kDepth,
                            b.data(),
                            512,
                            1024,
                            scores.data(),
                            kSide * kPanel,
                            kSide * kSide,
                            kSide,
                            kHeight / kSide,
                            2,
                            kDepth / 32,
                            false};
  const double bf16 = least_seconds([&] { dot_product(product); });
  return bf16 * 1.25 < f32;
}

Bf16Unit choose_unit() {
  switch (effective_isa()) {
    case Isa::amx:
      if (request_amx()) return Bf16Unit::amx;
      [[fallthrough]];
    case Isa::avx512_bf16:
      return dot_products_pay() ? Bf16Unit::avx512_bf16 : Bf16Unit::none;
    case Isa::avx512:
    case Isa::avx2:
      break;
  }
  return Bf16Unit::none;
}

}  // namespace

Bf16Unit bf16_unit() {
  static const Bf16Unit unit = choose_unit();
  return unit;
}

void tile_product(Bf16Unit unit, const TileProduct& product) {
  if (unit == Bf16Unit::amx) {
    amx_product(product);
  } else {
    dot_product(product);
  }
}

Bf16UnitScope::Bf16UnitScope(Bf16Unit unit) : unit_(unit) {
  if (unit_ == Bf16Unit::amx) configure_amx();
}
Bf16UnitScope::~Bf16UnitScope() {
  if (unit_ == Bf16Unit::amx) release_amx();
}

}  // namespace dcformer::attention
