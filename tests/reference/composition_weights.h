#pragma once

#include <cstdint>
#include <vector>

#include "tests/reference/gelu.h"

namespace dcformer::reference {

/// The dynamic composition weights of docs/design.md, section 2, item 5. The axis `cs` of four is
/// (pre,query), (pre,key), (post,query), (post,key); K = 2·R·M.
struct CompositionProblem {
  int64_t n_token = 0;
  int64_t width = 0;
  int64_t n_group = 1;
  int64_t group_heads = 1;
  int64_t rank = 2;
  Gelu gelu = Gelu::erf;
  /// Off: the rows of gates are 0, `dd` is not read.
  bool gates = true;
  /// Rounds to bf16 what the number formats of section 2 say: the operands x, dw1, dd and qkw, the
  /// hidden layer u, and the key-side blocks, which caches hold.
  bool round_to_bf16 = false;

  std::vector<double> x;    ///< [N,E]
  std::vector<double> dw1;  ///< [E,G,4,K]
  std::vector<double> qkw;  ///< [G,4,K,2R,M]
  std::vector<double> dd;   ///< [E,G,4·M]

  int64_t hidden() const { return 2 * rank * group_heads; }
  int64_t block() const { return (2 * rank + 1) * group_heads; }
};

/// [N,G,4,2R+1,M]: rows w1 (divided by their root mean square), rows w2, the gates.
std::vector<double> composition_weights(const CompositionProblem& problem);

/// One side's weights out of those, as attention takes them: [N,G,2,2R+1,M]; side 0 is the query's.
std::vector<double> composition_side(const CompositionProblem& problem,
                                     const std::vector<double>& weights, int64_t side);

/// Gradients in the layouts of the problem's arrays.
struct CompositionGradients {
  std::vector<double> x, dw1, qkw, dd;
};

/// For the gradient of the weights. Rounding is taken as the identity.
CompositionGradients composition_weights_backward(const CompositionProblem& problem,
                                                  const std::vector<double>& weights_gradient);

}  // namespace dcformer::reference
