#include "dcformer/tensor/tensor.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

namespace dcformer {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// f32 elements 0, 1, 2, …
Tensor counting_tensor(Context& context, const Shape& shape) {
  Tensor tensor = Tensor::empty(context, DType::f32, shape);
  const auto span = tensor.span<float>();
  std::iota(span.begin(), span.end(), 0.f);
  return tensor;
}

TEST(Tensor, DescribesItself) {
  Context context(1);
  const Tensor tensor = Tensor::empty(context, DType::bf16, {2, 5});
  EXPECT_TRUE(tensor.defined());
  EXPECT_EQ(tensor.dtype(), DType::bf16);
  EXPECT_EQ(tensor.shape(), (Shape{2, 5}));
  EXPECT_EQ(tensor.numel(), 10);
  EXPECT_EQ(tensor.bytes(), 20u);
  EXPECT_EQ(tensor.device(), Device::cpu);
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, ZerosAreZero) {
  Context context(1);
  // Memory that was used before must be cleared.
  {
    const Tensor used = Tensor::empty(context, DType::f32, {100});
    std::fill_n(used.data<float>(), 100, 1.f);
  }
  EXPECT_THAT(Tensor::zeros(context, DType::f32, {100}).span<float>(), Each(0.f));
}

TEST(Tensor, GivesItsOwnTypeOnly) {
  Context context(1);
  const Tensor tensor = Tensor::empty(context, DType::f32, {2});
  EXPECT_NO_THROW(tensor.data<float>());
  try {
    tensor.data<double>();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "tensor: expected f64, got f32");
  }
}

TEST(Tensor, CopiesAndReshapesShareTheBuffer) {
  Context context(1);
  const Tensor tensor = counting_tensor(context, {2, 6});
  const Tensor copy = tensor;
  const Tensor reshaped = tensor.reshape({3, 4});
  tensor.data<float>()[5] = 50;
  EXPECT_EQ(copy.data<float>()[5], 50);
  EXPECT_EQ(reshaped.data<float>()[5], 50);
  EXPECT_EQ(reshaped.shape(), (Shape{3, 4}));
  try {
    tensor.reshape({5});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot reshape [2,6] to [5]");
  }
}

TEST(Tensor, AdoptsForeignMemory) {
  bool released = false;
  std::vector<float> foreign{1, 2, 3};
  {
    Tensor tensor =
        Tensor::adopt(std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(foreign.data()),
                                                 [&](std::byte*) { released = true; }),
                      DType::f32, {3});
    EXPECT_EQ(tensor.data<float>()[2], 3);
    const Tensor copy = tensor;
    tensor = Tensor();
    EXPECT_FALSE(released);
  }
  EXPECT_TRUE(released);
}

TEST(Tensor, MatrixFlattensLeadingDimensions) {
  Context context(1);
  const Tensor tensor = counting_tensor(context, {2, 3, 4});
  const auto view = tensor.matrix().typed<float>();
  EXPECT_EQ(view.rows, 6);
  EXPECT_EQ(view.cols, 4);
  EXPECT_EQ(view.row(5)[3], 23);
  EXPECT_EQ(counting_tensor(context, {}).matrix().rows, 1);
  EXPECT_EQ(counting_tensor(context, {4, 0}).matrix().rows, 0);
}

TEST(Tensor, HeadsCutTheLastDimension) {
  Context context(1);
  const Tensor tensor = counting_tensor(context, {3, 8});
  const auto heads = tensor.heads(4).typed<float>();
  EXPECT_EQ(heads.n_token, 3);
  EXPECT_EQ(heads.n_head, 4);
  EXPECT_EQ(heads.head_dim, 2);
  EXPECT_EQ(heads.at(2, 3)[1], 23);
  try {
    tensor.heads(3);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[3,8] into 3 heads"));
  }
  EXPECT_THROW(tensor.heads(0), Error);
}

TEST(View, RangesStepByTheStride) {
  Context context(1);
  const Tensor tensor = counting_tensor(context, {4, 6});
  const ConstMatrix part = ConstMatrix(tensor.matrix()).col_range(3, 2).row_range(1, 2);
  const auto view = part.typed<float>();
  EXPECT_EQ(view.rows, 2);
  EXPECT_EQ(view.cols, 2);
  EXPECT_EQ(view.row(0)[0], 9);
  EXPECT_EQ(view.row(1)[1], 16);
}

TEST(View, HeadsOfAFusedProjection) {
  Context context(1);
  const Tensor tensor = counting_tensor(context, {3, 10});
  // Columns 4 … 9 as two heads of 3.
  const auto heads = ConstHeads(tensor.matrix(), 4, 2, 3).typed<float>();
  EXPECT_EQ(heads.n_token, 3);
  EXPECT_EQ(heads.at(0, 0)[0], 4);
  EXPECT_EQ(heads.at(2, 1)[2], 29);
}

TEST(View, OfHeadsFirstArraysNeedsNoCopy) {
  std::vector<float> values(2 * 3 * 4);
  std::iota(values.begin(), values.end(), 0.f);
  // [heads 2][tokens 3][dim 4]
  const HeadView<const float> view{values.data(), 3, 2, 4, 4, 12};
  EXPECT_EQ(view.at(2, 1)[3], 23);
  EXPECT_EQ(ConstHeads(view).typed<float>().at(1, 0)[0], 4);
}

TEST(View, TypesAreChecked) {
  Context context(1);
  const Tensor tensor = Tensor::zeros(context, DType::bf16, {2, 4});
  try {
    tensor.matrix().typed<float>();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "matrix view: expected f32, got bf16");
  }
  try {
    tensor.heads(2).typed<float>();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "head view: expected f32, got bf16");
  }
  EXPECT_NO_THROW(tensor.matrix().typed<BFloat16>());
}

}  // namespace
}  // namespace dcformer
