#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dcformer::reference {

/// Composed attention over one sequence, as docs/design.md writes it in section 2, items 4 to 9:
/// one (query, key) pair at a time, in double precision, every score stored.
struct AttentionProblem {
  int64_t n_query = 0;
  int64_t n_key = 0;
  int64_t n_head = 1;
  /// Divides n_head.
  int64_t n_kv_head = 1;
  int64_t head_dim = 1;
  int64_t n_group = 1;
  int64_t rank = 2;

  bool causal = true;
  /// Keeps exactly this many keys; needs `causal`.
  std::optional<int64_t> window;
  /// Position of query 0; n_key - n_query when not given.
  std::optional<int64_t> start;
  /// Keys from here on are padding; n_key when not given.
  std::optional<int64_t> key_length;
  /// Visible only where equal; both empty: one segment. [T] and [S].
  std::vector<int> query_segments;
  std::vector<int> key_segments;

  /// `pre` and `post` off leave out a stage's composition altogether, `dynamic` off both sides'
  /// weights and gates of both stages. A side that is off needs no weights.
  bool pre = true;
  bool post = true;
  bool query_side = true;
  bool key_side = true;
  bool dynamic = true;
  bool gates = true;
  bool base_projection = false;

  std::vector<double> q;  ///< [T,H,D]
  std::vector<double> k;  ///< [S,Hkv,D]
  std::vector<double> v;  ///< [S,Hkv,D]
  /// [T,G,2,2R+1,M] and [S,G,2,2R+1,M]: for each token, group and stage (0 pre, 1 post) the rows w1
  /// (already normalised), the rows w2 and the gates (tanh already applied).
  std::vector<double> query_weights;
  std::vector<double> key_weights;
  /// [G,M,M], W[n,m] from head n to head m.
  std::vector<double> base_pre;
  std::vector<double> base_post;

  /// Rounds to bf16 what is multiplied with q, k, v and the gradient of o (A'' and the gradient of
  /// A), and that gradient; q, k and v are the caller's to round.
  bool round_to_bf16 = false;

  int64_t group_heads() const { return n_head / n_group; }
  /// Values of one token, group and stage: (2R+1)·M.
  int64_t block() const { return (2 * rank + 1) * group_heads(); }
  int64_t first_position() const { return start.value_or(n_key - n_query); }
};

/// True where query i sees key j (item 8).
bool visible(const AttentionProblem& problem, int64_t i, int64_t j);

struct AttentionResult {
  std::vector<double> o;  ///< [T,H,D]
  /// Of the rows of A' (pre-composed, visible scores): maximum and Σ exp(A' - maximum), [T,H]; both
  /// 0 for a row that sees no key.
  std::vector<double> maximum;
  std::vector<double> sum;
};

AttentionResult attention(const AttentionProblem& problem);

/// Gradients in the layouts of the problem's arrays; those of arrays that take no part are 0, and
/// empty where the array is.
struct AttentionGradients {
  std::vector<double> q, k, v, query_weights, key_weights, base_pre, base_post;
};

/// For the gradient `output_gradient` [T,H,D] of o. Rounding is taken as the identity.
AttentionGradients attention_backward(const AttentionProblem& problem,
                                      const std::vector<double>& output_gradient);

}  // namespace dcformer::reference
