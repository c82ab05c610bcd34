#include "dcformer/ops/gemm.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/base/isa.h"
#include "dcformer/base/parallel.h"
#include "dcformer/ops/convert.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {
namespace {

struct Shape3 {
  int64_t m, n, k;
};

Shape3 checked_shape(const Gemm& p) {
  const int64_t m = p.transpose_a ? p.a.cols : p.a.rows;
  const int64_t k = p.transpose_a ? p.a.rows : p.a.cols;
  const int64_t k_of_b = p.transpose_b ? p.b.cols : p.b.rows;
  const int64_t n = p.transpose_b ? p.b.rows : p.b.cols;
  require(k == k_of_b, "gemm: inner dimensions differ: {} and {}", k, k_of_b);
  require(p.c.rows == m && p.c.cols == n, "gemm: expected a result [{},{}], got [{},{}]", m, n,
          p.c.rows, p.c.cols);
  require(p.a.dtype == p.b.dtype, "gemm: operands are {} and {}, expected one type",
          name_of(p.a.dtype), name_of(p.b.dtype));
  require(p.a.dtype == DType::f32 || p.a.dtype == DType::bf16,
          "gemm: operands are {}, expected f32 or bf16", name_of(p.a.dtype));
  require(p.c.dtype == DType::f32 || (p.c.dtype == p.a.dtype && !p.accumulate),
          "gemm: result is {}, expected f32", name_of(p.c.dtype));
  return {m, n, k};
}

dnnl::memory::data_type dnnl_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc describe(int64_t rows, int64_t cols, int64_t stride, bool transpose,
                            DType dtype) {
  const dnnl::memory::dims strides =
      transpose ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, cols}, dnnl_type(dtype), strides};
}

struct CompiledGemm {
  dnnl::matmul primitive;
  dnnl::memory::desc a, b, c, scratchpad;
};

// oneDNN makes a primitive for each shape, which costs a quarter of a millisecond: they are kept.
class GemmCache {
 public:
  std::shared_ptr<const CompiledGemm> get(const Gemm& p, Shape3 s) {
    const Key key{s.m,
                  s.n,
                  s.k,
                  p.a.stride,
                  p.b.stride,
                  p.c.stride,
                  p.transpose_a,
                  p.transpose_b,
                  p.accumulate,
                  static_cast<int64_t>(p.a.dtype),
                  static_cast<int64_t>(p.c.dtype)};
    std::lock_guard lock(mutex_);
    std::shared_ptr<const CompiledGemm>& slot = compiled_[key];
    if (!slot) slot = compile(p, s);
    return slot;
  }

  dnnl::engine& engine() { return engine_; }

 private:
  using Key = std::array<int64_t, 11>;

  std::shared_ptr<const CompiledGemm> compile(const Gemm& p, Shape3 s) {
    auto result = std::make_shared<CompiledGemm>();
    result->a = describe(s.m, s.k, p.a.stride, p.transpose_a, p.a.dtype);
    result->b = describe(s.k, s.n, p.b.stride, p.transpose_b, p.b.dtype);
    result->c = describe(s.m, s.n, p.c.stride, false, p.c.dtype);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const dnnl::matmul::desc description(result->a, result->b, result->c);
    const dnnl::matmul::primitive_desc primitive(description, attributes, engine_);
    result->scratchpad = primitive.scratchpad_desc();
    result->primitive = dnnl::matmul(primitive);
    return result;
  }

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const CompiledGemm>> compiled_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
};

void run_tile(Context& context, const Gemm& p) {
  GemmCache& cache = context.service<GemmCache>();
  const Shape3 shape{p.c.rows, p.c.cols, p.transpose_a ? p.a.rows : p.a.cols};
  const auto compiled = cache.get(p, shape);
  const auto scratch = context.allocator().allocate(compiled->scratchpad.get_size());
  dnnl::engine& engine = cache.engine();
  dnnl::stream stream(engine);
  const dnnl::memory a(compiled->a, engine, const_cast<void*>(p.a.data));
  const dnnl::memory b(compiled->b, engine, const_cast<void*>(p.b.data));
  const dnnl::memory c(compiled->c, engine, p.c.data);
  const dnnl::memory scratchpad(compiled->scratchpad, engine, scratch.get());
  compiled->primitive.execute(stream, {{DNNL_ARG_SRC, a},
                                       {DNNL_ARG_WEIGHTS, b},
                                       {DNNL_ARG_DST, c},
                                       {DNNL_ARG_SCRATCHPAD, scratchpad}});
  stream.wait();
}

void set_zero(const Gemm& p) {
  if (p.accumulate) return;
  for (int64_t r = 0; r < p.c.rows; ++r) {
    char* row = static_cast<char*>(p.c.row_range(r, 1).data);
    std::fill_n(row, p.c.cols * static_cast<int64_t>(size_of(p.c.dtype)), 0);
  }
}

Gemm tile_of(const Gemm& p, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  Gemm tile = p;
  tile.a = p.transpose_a ? p.a.col_range(row, rows) : p.a.row_range(row, rows);
  tile.b = p.transpose_b ? p.b.row_range(col, cols) : p.b.col_range(col, cols);
  tile.c = p.c.row_range(row, rows).col_range(col, cols);
  return tile;
}

// Cuts C into tiles by its shape alone. Column tiles keep all of A shared between the threads,
// which measured best; rows are cut only where there are too few columns to go round, or too many
// rows.
void add_tiles(const Gemm& p, std::vector<Gemm>& tiles) {
  constexpr int64_t kRows = 1024;
  constexpr int64_t kCols = 256;
  const int64_t m = p.c.rows;
  const int64_t n = p.c.cols;
  const int64_t col_tiles = std::max<int64_t>(1, (n + kCols / 2) / kCols);
  const int64_t wanted_row_tiles = col_tiles >= 8 ? 1 : 8 / col_tiles;
  const int64_t row_step =
      std::min(kRows, std::max<int64_t>(128, (m + wanted_row_tiles - 1) / wanted_row_tiles));
  const int64_t col_step = ((n + col_tiles - 1) / col_tiles + 15) / 16 * 16;
  for (int64_t col = 0; col < n; col += col_step)
    for (int64_t row = 0; row < m; row += row_step)
      tiles.push_back(
          tile_of(p, row, std::min(row_step, m - row), col, std::min(col_step, n - col)));
}

// The same product on f32 copies of its operands.
class WidenedGemm {
 public:
  WidenedGemm(Context& context, const Gemm& product) : result_(product.c), product_(product) {
    product_.a = widen(context, product.a, a_);
    product_.b = widen(context, product.b, b_);
    if (result_.dtype == DType::bf16) {
      c_ = Tensor::empty(context, DType::f32, {result_.rows, result_.cols});
      product_.c = c_.matrix();
    }
  }
  const Gemm& product() const { return product_; }
  void finish(Context& context) const {
    if (result_.dtype == DType::bf16) convert(context, product_.c, result_);
  }

 private:
  static ConstMatrix widen(Context& context, ConstMatrix from, Tensor& to) {
    to = Tensor::empty(context, DType::f32, {from.rows, from.cols});
    convert(context, from, to.matrix());
    return to.matrix();
  }
  Tensor a_, b_, c_;
  Matrix result_;
  Gemm product_;
};

bool must_widen(const Gemm& p) { return p.a.dtype == DType::bf16 && !has_bf16_products(); }

// False when there is nothing to multiply; the result is then set.
bool prepare(const Gemm& p) {
  const Shape3 shape = checked_shape(p);
  if (shape.m == 0 || shape.n == 0) return false;
  if (shape.k == 0) set_zero(p);
  return shape.k != 0;
}

}  // namespace

void gemm(Context& context, std::span<const Gemm> products) {
  std::vector<WidenedGemm> widened;
  std::vector<Gemm> tiles;
  for (const Gemm& p : products) {
    if (!prepare(p)) continue;
    if (must_widen(p)) {
      widened.emplace_back(context, p);
      add_tiles(widened.back().product(), tiles);
    } else {
      add_tiles(p, tiles);
    }
  }
  parallel_for(context, static_cast<int64_t>(tiles.size()),
               [&](int64_t i) { run_tile(context, tiles[static_cast<size_t>(i)]); });
  for (const WidenedGemm& w : widened) w.finish(context);
}

}  // namespace dcformer
