#include "dcformer/ops/choose_dtype.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "dcformer/base/isa.h"
#include "dcformer/ops/gemm.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {
namespace {

// bf16 rounds its operands, so it has to be worth it.
constexpr double kWorthwhile = 1.2;

double product_rate(Context& context, DType dtype) {
  constexpr int64_t n = 768;
  const Tensor a = Tensor::zeros(context, dtype, {n, n});
  const Tensor b = Tensor::zeros(context, dtype, {n, n});
  const Tensor c = Tensor::empty(context, DType::f32, {n, n});
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    gemm(context, Gemm{a.matrix(), false, b.matrix(), true, c.matrix(), false});
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
  return 2e-9 * n * n * n / seconds[3];
}

}  // namespace

DType choose_compute_dtype(Context& context, const std::string& text) {
  if (text == "f32") return DType::f32;
  if (text == "bf16") return DType::bf16;
  require(text == "auto", "dtype is '{}', expected f32, bf16 or auto", text);
  if (!has_bf16_products()) {
    spdlog::info("dtype auto: f32 (this processor has no bf16 products)");
    return DType::f32;
  }
  const double f32 = product_rate(context, DType::f32);
  const double bf16 = product_rate(context, DType::bf16);
  const DType choice = bf16 > kWorthwhile * f32 ? DType::bf16 : DType::f32;
  spdlog::info("dtype auto: {} (products run at {:.0f} GFLOP/s in f32, {:.0f} in bf16)",
               name_of(choice), f32, bf16);
  return choice;
}

}  // namespace dcformer
