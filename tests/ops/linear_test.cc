#include "dcformer/ops/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>

#include "dcformer/ops/convert.h"
#include "dcformer/ops/half_kernels.h"
#include "dcformer/tensor/tensor.h"
#include "tests/reference/bfloat16.h"
#include "tests/reference/linear.h"
#include "tests/support/compare.h"
#include "tests/support/random_values.h"

namespace dcformer {
namespace {

using test::to_doubles;

// f32 sums of up to some hundred products of operands that both sides share; a single output may
// cancel to a hundredth of its terms.
constexpr double kTolerance = 1e-5;

std::vector<double> transposed(const std::vector<double>& w, int64_t rows, int64_t cols) {
  std::vector<double> t(w.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      t[static_cast<size_t>(c * rows + r)] = w[static_cast<size_t>(r * cols + c)];
  return t;
}

Tensor tensor_of(Context& context, const std::vector<float>& values, int64_t cols, DType dtype) {
  const auto rows = static_cast<int64_t>(values.size()) / cols;
  const Tensor t = Tensor::empty(context, dtype, {rows, cols});
  convert(context, MatrixView<const float>{values.data(), rows, cols, cols}, t.matrix());
  return t;
}

// Rows, inputs, outputs, layout, type.
using Case = std::tuple<int64_t, int64_t, int64_t, WeightLayout, DType>;

class Linear : public ::testing::TestWithParam<Case> {};

TEST_P(Linear, ForwardAndBackward) {
  const auto [rows, n_in, n_out, layout, dtype] = GetParam();
  Context context(2);
  const bool out_in = layout == WeightLayout::out_in;
  const auto x = test::random_floats(rows * n_in, 1);
  const auto w = test::random_floats(n_in * n_out, 2);
  const auto bias = test::random_floats(n_out, 3);
  const auto dy = test::random_floats(rows * n_out, 4);
  const auto operand = [&, dtype = dtype](const std::vector<float>& v) {
    return dtype == DType::f32 ? to_doubles(v) : reference::to_bfloat16(to_doubles(v));
  };
  const auto w_out_in = out_in ? operand(w) : transposed(operand(w), n_in, n_out);
  const Tensor xt = tensor_of(context, x, n_in, dtype);
  const Tensor wt = tensor_of(context, w, out_in ? n_in : n_out, dtype);
  const Tensor dyt = tensor_of(context, dy, n_out, dtype);
  const Weight weight{wt.matrix(), layout, bias.data()};
  const Tensor y = Tensor::empty(context, DType::f32, {rows, n_out});
  linear(context, xt.matrix(), weight, y.matrix());
  EXPECT_TRUE(test::norm_close(
      y.span<float>(),
      reference::linear(operand(x), w_out_in, to_doubles(bias), static_cast<int>(n_in)),
      kTolerance));

  const auto e =
      reference::linear_backward(operand(x), w_out_in, operand(dy), static_cast<int>(n_in));
  const Tensor dx = Tensor::empty(context, DType::f32, {rows, n_in});
  linear_backward_input(context, dyt.matrix(), weight, dx.matrix(), false);
  EXPECT_TRUE(test::norm_close(dx.span<float>(), e.x, kTolerance));
  linear_backward_input(context, dyt.matrix(), weight, dx.matrix(), true);
  auto twice = e.x;
  for (double& d : twice) d *= 2;
  EXPECT_TRUE(test::norm_close(dx.span<float>(), twice, kTolerance));

  const Tensor dw = Tensor::zeros(context, DType::f32, {wt.matrix().rows, wt.matrix().cols});
  for (int i = 0; i < 2; ++i)
    linear_backward_weight(context, xt.matrix(), dyt.matrix(), layout, dw.matrix());
  auto dw_expected = out_in ? e.weight : transposed(e.weight, n_out, n_in);
  for (double& d : dw_expected) d *= 2;
  EXPECT_TRUE(test::norm_close(dw.span<float>(), dw_expected, kTolerance));

  std::vector<float> dbias(bias.size());
  linear_backward_bias(context, dyt.matrix(), dbias.data());
  EXPECT_TRUE(test::all_close(dbias, e.bias, 1e-5, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Linear,
    ::testing::Combine(::testing::Values(1, 3, 8, 31, 32, 33, 130),
                       ::testing::Values(1, 17, 64, 131), ::testing::Values(1, 16, 37, 300),
                       ::testing::Values(WeightLayout::out_in, WeightLayout::in_out),
                       ::testing::Values(DType::f32, DType::bf16)));

// A row's arithmetic does not depend on the rows beside it.
TEST(Linear, FewRowsGiveTheSameBitsOneByOneAndTogether) {
  Context context(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      const int64_t n_in = 133;
      const int64_t n_out = 517;
      const Tensor x = tensor_of(context, test::random_floats(32 * n_in, 5), n_in, dtype);
      const Tensor w = tensor_of(context, test::random_floats(n_in * n_out, 6),
                                 layout == WeightLayout::out_in ? n_in : n_out, dtype);
      const Weight weight{w.matrix(), layout, nullptr};
      const Tensor together = Tensor::empty(context, DType::f32, {32, n_out});
      linear(context, x.matrix(), weight, together.matrix());
      for (const int64_t step : {1, 5, 13}) {
        const Tensor apart = Tensor::empty(context, DType::f32, {32, n_out});
        for (int64_t row = 0; row < 32; row += step) {
          const int64_t n = std::min(step, 32 - row);
          linear(context, x.matrix().row_range(row, n), weight, apart.matrix().row_range(row, n));
        }
        EXPECT_EQ(std::memcmp(apart.raw(), together.raw(), together.bytes()), 0);
      }
    }
}

// f16 weights give the bits of the same values in the operands' type, over several panels too.
TEST(Linear, HalvesAreConvertedByPanels) {
  Context context(2);
  for (const auto layout : {WeightLayout::out_in, WeightLayout::in_out})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t rows : {1, 40}) {
        const int64_t n_in = 3000;
        const int64_t n_out = 700;
        const bool out_in = layout == WeightLayout::out_in;
        // Halves of one decimal: exact in f16 and in bf16.
        auto w = test::random_floats(n_in * n_out, 2);
        for (float& v : w) v = std::round(v * 8) / 8;
        const Tensor wide = tensor_of(context, w, out_in ? n_in : n_out, dtype);
        const Tensor half = Tensor::empty(context, DType::f16, wide.shape());
        round_to_f16(w.data(), half.data<Float16>(), half.numel());
        const Tensor x = tensor_of(context, test::random_floats(rows * n_in, 1), n_in, dtype);
        const auto bias = test::random_floats(n_out, 3);
        const Tensor expected = Tensor::empty(context, DType::f32, {rows, n_out});
        const Tensor y = Tensor::empty(context, DType::f32, {rows, n_out});
        linear(context, x.matrix(), {wide.matrix(), layout, bias.data()}, expected.matrix());
        linear(context, x.matrix(), {half.matrix(), layout, bias.data()}, y.matrix());
        // Products of many rows are cut otherwise for a panel.
        if (rows == 1) {
          EXPECT_TRUE(test::same_values(y.span<float>(), expected.span<float>()));
        } else {
          EXPECT_TRUE(test::norm_close(y.span<float>(), expected.span<float>(), 1e-6));
        }
      }
}

TEST(Linear, BitsDoNotDependOnTheNumberOfThreads) {
  std::vector<float> first_y, first_dw;
  for (const int threads : {1, 2, 3}) {
    Context context(threads);
    const int64_t rows = 700;
    const Tensor x = tensor_of(context, test::random_floats(rows * 96, 7), 96, DType::f32);
    const Tensor w = tensor_of(context, test::random_floats(96 * 1100, 8), 96, DType::f32);
    const Tensor y = Tensor::empty(context, DType::f32, {rows, 1100});
    linear(context, x.matrix(), {w.matrix(), WeightLayout::out_in, nullptr}, y.matrix());
    const Tensor dw = Tensor::zeros(context, DType::f32, {1100, 96});
    linear_backward_weight(context, x.matrix(), y.matrix(), WeightLayout::out_in, dw.matrix());
    const auto ys = y.span<float>();
    const auto dws = dw.span<float>();
    if (threads == 1) {
      first_y.assign(ys.begin(), ys.end());
      first_dw.assign(dws.begin(), dws.end());
    }
    EXPECT_TRUE(std::equal(ys.begin(), ys.end(), first_y.begin()));
    EXPECT_TRUE(std::equal(dws.begin(), dws.end(), first_dw.begin()));
  }
}

TEST(Linear, WrongShapesAreNamed) {
  Context context(1);
  const Tensor x = Tensor::zeros(context, DType::f32, {4, 8});
  const Tensor w = Tensor::zeros(context, DType::f32, {5, 9});
  const Tensor y = Tensor::zeros(context, DType::f32, {4, 5});
  EXPECT_THROW(linear(context, x.matrix(), {w.matrix(), WeightLayout::out_in, nullptr}, y.matrix()),
               Error);
  const Tensor half = Tensor::zeros(context, DType::bf16, {5, 8});
  EXPECT_THROW(
      linear(context, x.matrix(), {half.matrix(), WeightLayout::out_in, nullptr}, y.matrix()),
      Error);
}

}  // namespace
}  // namespace dcformer
