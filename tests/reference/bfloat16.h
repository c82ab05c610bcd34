#pragma once

#include <vector>

namespace dcformer::reference {

/// The bf16 value (8 significant bits) nearest to a finite number, ties to even. Written with the
/// arithmetic of doubles, not with bit patterns, so that it checks the library's own rounding.
double to_bfloat16(double value);

/// The same for each of them.
std::vector<double> to_bfloat16(const std::vector<double>& values);

}  // namespace dcformer::reference
