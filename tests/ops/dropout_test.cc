#include "dcformer/ops/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dcformer/base/random.h"
#include "dcformer/tensor/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/random_values.h"

namespace dcformer {
namespace {

Matrix matrix(std::vector<float>& values, int64_t cols) {
  return MatrixView<float>{values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}

std::vector<float> mask_of(Context& context, const DropoutMask& mask, int64_t rows, int64_t cols) {
  std::vector<float> ones(static_cast<size_t>(rows * cols), 1);
  dropout(context, mask, matrix(ones, cols));
  return ones;
}

// Value c of token t is dropped when word c mod 4 of philox at (c / 4, t, site, step) is below
// rate·2^32.
TEST(Dropout, FollowsTheCounters) {
  Context context(2);
  const DropoutMask mask{0.3, 0x123456789abcdefull, 7, 11, 5};
  const int64_t rows = 9;
  const int64_t cols = 23;
  auto x = test::random_floats(rows * cols, 1);
  const auto before = x;
  dropout(context, mask, matrix(x, cols));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const auto words = philox({static_cast<uint32_t>(c / 4), static_cast<uint32_t>(5 + r), 11, 7},
                                {0x89abcdefu ^ 0x64726f70u, 0x01234567u});
      const bool dropped = words[static_cast<size_t>(c % 4)] < 0.3 * 4294967296.0;
      const auto i = static_cast<size_t>(r * cols + c);
      EXPECT_FLOAT_EQ(x[i], dropped ? 0.0f : before[i] / 0.7f) << r << "," << c;
    }
}

TEST(Dropout, DropsItsShareAndKeepsTheMean) {
  Context context(2);
  for (const double rate : {0.1, 0.5, 0.9}) {
    const auto mask = mask_of(context, {rate, 1, 2, 3, 0}, 400, 500);
    double dropped = 0;
    double sum = 0;
    for (const float m : mask) {
      dropped += m == 0 ? 1 : 0;
      sum += m;
    }
    const double n = 200000;
    // Six standard deviations of the binomial distribution.
    EXPECT_NEAR(dropped / n, rate, 6 * std::sqrt(rate * (1 - rate) / n));
    EXPECT_NEAR(sum / n, 1, 6 * std::sqrt(rate / (1 - rate) / n));
  }
}

TEST(Dropout, PlacesAreIndependentAndPassesMayBeCut) {
  Context context(1);
  const DropoutMask mask{0.5, 1, 2, 3, 0};
  const auto whole = mask_of(context, mask, 8, 64);
  EXPECT_EQ(mask_of(context, mask, 8, 64), whole);
  DropoutMask second = mask;
  second.first_token = 3;
  const auto rest = mask_of(context, second, 5, 64);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 3 * 64));
  // Another seed, step or site: half of the values differ, give or take six deviations.
  std::vector<DropoutMask> others(4, mask);
  others[0].seed = 2;
  others[1].step = 3;
  others[2].site = 4;
  others[3].seed = uint64_t{1} << 32 | 1;
  for (const DropoutMask& other : others) {
    const auto changed = mask_of(context, other, 8, 64);
    int n = 0;
    for (size_t i = 0; i < whole.size(); ++i) n += whole[i] != changed[i] ? 1 : 0;
    EXPECT_NEAR(n, 256, 6 * std::sqrt(128.0));
  }
}

TEST(Dropout, RoundsInBf16AndChecksItsRate) {
  Context context(1);
  const Tensor x = Tensor::empty(context, DType::bf16, {4, 32});
  for (BFloat16& v : x.span<BFloat16>()) v = BFloat16(1.0f);
  dropout(context, {0.3, 1, 2, 3, 0}, x.matrix());
  const auto f32 = mask_of(context, {0.3, 1, 2, 3, 0}, 4, 32);
  for (size_t i = 0; i < f32.size(); ++i)
    EXPECT_EQ(static_cast<float>(x.span<BFloat16>()[i]), static_cast<float>(BFloat16(f32[i])));
  const auto untouched = mask_of(context, {}, 2, 3);
  EXPECT_EQ(untouched, std::vector<float>(6, 1));
  for (const double rate : {-0.1, 1.0, std::nan("")})
    EXPECT_THROW(mask_of(context, {rate, 1, 2, 3, 0}, 1, 1), Error) << rate;
}

}  // namespace
}  // namespace dcformer
