#include "dcformer/ops/choose_dtype.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "dcformer/base/check.h"
#include "dcformer/base/isa.h"
#include "dcformer/ops/gemm.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {
namespace {

// bf16 rounds its operands, so it has to be worth it.
constexpr double kWorthwhile = 1.2;
constexpr int kRounds = 25;

/// A product of matrices of one type, timed again and again.
class TimedProduct {
 public:
  TimedProduct(Context& context, DType dtype)
      : context_(context),
        a_(Tensor::zeros(context, dtype, {kSize, kSize})),
        b_(Tensor::zeros(context, dtype, {kSize, kSize})),
        c_(Tensor::empty(context, DType::f32, {kSize, kSize})) {}

  void run() {
    const auto begin = std::chrono::steady_clock::now();
    gemm(context_, Gemm{a_.matrix(), false, b_.matrix(), true, c_.matrix(), false});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    // Other work on the machine only ever makes it longer.
    least_ = std::min(least_, taken.count());
  }
  double gflops() const { return 2e-9 * kSize * kSize * kSize / least_; }

 private:
  static constexpr int64_t kSize = 768;
  Context& context_;
  Tensor a_, b_, c_;
  double least_ = std::numeric_limits<double>::infinity();
};

}  // namespace

DType choose_compute_dtype(Context& context, const std::string& text) {
  if (text == "f32") return DType::f32;
  if (text == "bf16") return DType::bf16;
  require(text == "auto", "dtype is '{}', expected f32, bf16 or auto", text);
  if (!has_bf16_products()) {
    spdlog::info("dtype auto: f32 (this processor has no bf16 products)");
    return DType::f32;
  }
  TimedProduct f32_product(context, DType::f32);
  TimedProduct bf16_product(context, DType::bf16);
  // In turn: a slow moment meets both.
  for (int i = 0; i < kRounds; ++i) {
    f32_product.run();
    bf16_product.run();
  }
  const double f32 = f32_product.gflops();
  const double bf16 = bf16_product.gflops();
  const DType choice = bf16 > kWorthwhile * f32 ? DType::bf16 : DType::f32;
  spdlog::info("dtype auto: {} (products run at {:.0f} GFLOP/s in f32, {:.0f} in bf16)",
               name_of(choice), f32, bf16);
  return choice;
}

}  // namespace dcformer
