#pragma once

#include <cstdint>
#include <vector>

namespace dcformer::reference {

/// p[n,s] = softmax over s of x[n,s], rows of `n_slice`: the gate that scales slices of the hidden
/// layer.
std::vector<double> mgate(const std::vector<double>& x, int64_t n_slice);

/// The gradient of x.
std::vector<double> mgate_backward(const std::vector<double>& x, int64_t n_slice,
                                   const std::vector<double>& dp);

/// y[n,f] = silu(a[n,f])·b[n,f]·gate[n, f/(F/S)] for rows of `width` F; without a gate (empty) the
/// last factor is 1. S is the length of the gate's rows.
std::vector<double> swiglu(const std::vector<double>& a, const std::vector<double>& b,
                           const std::vector<double>& gate, int64_t width);

struct SwigluGradients {
  std::vector<double> a, b, gate;
};

SwigluGradients swiglu_backward(const std::vector<double>& a, const std::vector<double>& b,
                                const std::vector<double>& gate, int64_t width,
                                const std::vector<double>& dy);

}  // namespace dcformer::reference
