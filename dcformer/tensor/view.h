#pragma once

#include <cstdint>
#include <type_traits>

#include "dcformer/tensor/dtype.h"

namespace dcformer {

/// A borrowed matrix `[rows, cols]` of a static type; row r begins at data + r·stride, columns are
/// contiguous.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  T* row(int64_t r) const { return data + r * stride; }
  operator MatrixView<const T>() const { return {data, rows, cols, stride}; }
};

/// A borrowed `[tokens, heads, head_dim]` of a static type; the last axis is contiguous, so that a
/// part of a fused projection or a `[heads, tokens, head_dim]` array needs no copy.
template <typename T>
struct HeadView {
  T* data = nullptr;
  int64_t n_token = 0;
  int64_t n_head = 0;
  int64_t head_dim = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;

  T* at(int64_t token, int64_t head) const {
    return data + token * token_stride + head * head_stride;
  }
  operator HeadView<const T>() const {
    return {data, n_token, n_head, head_dim, token_stride, head_stride};
  }
};

namespace internal {
template <bool kConst>
using VoidPointer = std::conditional_t<kConst, const void*, void*>;
}  // namespace internal

/// MatrixView with the type known at run time: what operations take. `typed<T>()` throws Error when
/// the type is another one.
template <bool kConst>
struct AnyMatrix {
  internal::VoidPointer<kConst> data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  AnyMatrix() = default;
  AnyMatrix(internal::VoidPointer<kConst> data, DType dtype, int64_t rows, int64_t cols,
            int64_t stride)
      : data(data), dtype(dtype), rows(rows), cols(cols), stride(stride) {}
  template <typename T>
  requires(kConst || !std::is_const_v<T>)
      AnyMatrix(MatrixView<T> view)  // NOLINT: implicit on purpose
      : AnyMatrix(view.data, dtype_of<T>(), view.rows, view.cols, view.stride) {}
  template <bool kOther>
  requires(kConst && !kOther)
      AnyMatrix(const AnyMatrix<kOther>& other)  // NOLINT: implicit on purpose
      : AnyMatrix(other.data, other.dtype, other.rows, other.cols, other.stride) {}

  template <typename T>
  auto typed() const {
    using U = std::conditional_t<kConst, const T, T>;
    require_dtype("matrix view", dtype, dtype_of<T>());
    return MatrixView<U>{static_cast<U*>(data), rows, cols, stride};
  }

  /// Rows [begin, begin + count), and columns likewise.
  AnyMatrix row_range(int64_t begin, int64_t count) const {
    return {offset(begin * stride), dtype, count, cols, stride};
  }
  AnyMatrix col_range(int64_t begin, int64_t count) const {
    return {offset(begin), dtype, rows, count, stride};
  }

 private:
  internal::VoidPointer<kConst> offset(int64_t elements) const {
    using Byte = std::conditional_t<kConst, const char, char>;
    return static_cast<Byte*>(data) + elements * static_cast<int64_t>(size_of(dtype));
  }
};
using Matrix = AnyMatrix<false>;
using ConstMatrix = AnyMatrix<true>;

/// HeadView with the type known at run time.
template <bool kConst>
struct AnyHeads {
  internal::VoidPointer<kConst> data = nullptr;
  DType dtype = DType::f32;
  int64_t n_token = 0;
  int64_t n_head = 0;
  int64_t head_dim = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;

  AnyHeads() = default;
  AnyHeads(internal::VoidPointer<kConst> data, DType dtype, int64_t n_token, int64_t n_head,
           int64_t head_dim, int64_t token_stride, int64_t head_stride)
      : data(data),
        dtype(dtype),
        n_token(n_token),
        n_head(n_head),
        head_dim(head_dim),
        token_stride(token_stride),
        head_stride(head_stride) {}
  template <typename T>
  requires(kConst || !std::is_const_v<T>) AnyHeads(HeadView<T> v)  // NOLINT: implicit on purpose
      : AnyHeads(v.data, dtype_of<T>(), v.n_token, v.n_head, v.head_dim, v.token_stride,
                 v.head_stride) {}
  template <bool kOther>
  requires(kConst && !kOther) AnyHeads(const AnyHeads<kOther>& o)  // NOLINT: implicit on purpose
      : AnyHeads(o.data, o.dtype, o.n_token, o.n_head, o.head_dim, o.token_stride, o.head_stride) {}
  /// The columns [first, first + n_head·head_dim) of a matrix of tokens.
  AnyHeads(AnyMatrix<kConst> m, int64_t first, int64_t n_head, int64_t head_dim)
      : AnyHeads(m.col_range(first, n_head * head_dim).data, m.dtype, m.rows, n_head, head_dim,
                 m.stride, head_dim) {}

  template <typename T>
  auto typed() const {
    using U = std::conditional_t<kConst, const T, T>;
    require_dtype("head view", dtype, dtype_of<T>());
    return HeadView<U>{static_cast<U*>(data), n_token, n_head, head_dim, token_stride, head_stride};
  }
};
using Heads = AnyHeads<false>;
using ConstHeads = AnyHeads<true>;

}  // namespace dcformer
