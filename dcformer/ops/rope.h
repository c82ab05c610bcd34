#pragma once

#include <span>
#include <vector>

#include "dcformer/base/context.h"
#include "dcformer/tensor/view.h"

namespace dcformer {

/// Cosines and sines of rotary position embedding (Su et al., "RoFormer", 2021) for positions
/// 0 … n_position-1: angle pos / base^(2d/D_rot) for d < D_rot/2, computed in double, stored f32.
class RopeTable {
 public:
  RopeTable() = default;
  /// Throws Error for an odd or negative `rotary_dim`.
  RopeTable(int64_t n_position, int64_t rotary_dim, double base);

  int64_t n_position() const { return n_position_; }
  int64_t rotary_dim() const { return rotary_dim_; }
  const float* cosine(int64_t position) const {
    return cosine_.data() + position * rotary_dim_ / 2;
  }
  const float* sine(int64_t position) const { return sine_.data() + position * rotary_dim_ / 2; }

 private:
  int64_t n_position_ = 0;
  int64_t rotary_dim_ = 0;
  std::vector<float> cosine_;
  std::vector<float> sine_;
};

enum class RopeDirection { forward, inverse };

/// Rotates the pairs (d, d + D_rot/2) of each head's first D_rot coordinates by the angle of the
/// token's position (backwards for `inverse`, which is the gradient's map); the rest is copied. x
/// is [N,H,D] f32, y [N,H,D] f32 or bf16, set; y may be x where both are f32. positions [N]. Throws
/// Error for a position beyond the table.
void rope(Context& context, HeadView<const float> x, std::span<const int64_t> positions,
          const RopeTable& table, RopeDirection direction, Heads y);

}  // namespace dcformer
