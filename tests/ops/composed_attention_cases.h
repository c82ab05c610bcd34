#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dcformer/ops/composed_attention.h"
#include "tests/reference/attention.h"

namespace dcformer::test {

/// A random problem with awkward shapes, every switch drawn from `seed`; T·S·H stays below `limit`.
reference::AttentionProblem random_attention_problem(uint64_t seed, int64_t limit);
/// The problem in words, for a failure's message.
std::string describe(const reference::AttentionProblem& problem);

/// A problem of 4 heads in 2 groups, of rank 2, all else as given, with the last queries of n_key
/// tokens. Scores have a standard deviation of about scale².
reference::AttentionProblem long_attention_problem(int64_t n_query, int64_t n_key, int64_t head_dim,
                                                   double scale, uint64_t seed);
/// The same in bf16: q, k and v rounded, and all that is multiplied with them.
reference::AttentionProblem in_bf16(reference::AttentionProblem problem);

/// One problem laid out for the kernel: strided buffers whose gaps, and padded keys, are filled
/// with NaN. q, k and v are bf16 where the problem rounds to bf16.
class AttentionCase {
 public:
  explicit AttentionCase(const reference::AttentionProblem& problem);
  AttentionCase(const AttentionCase&) = delete;

  AttentionInputs inputs() const;

  struct Output {
    std::vector<float> o;
    std::vector<float> statistics;
  };
  Output forward(Context& context) const;
  /// The same with keys in pages that hold `dtype`, their unused slots NaN, queries in steps of
  /// `step`.
  std::vector<float> forward_paged(Context& context, DType dtype, int64_t step) const;

  struct Gradients {
    std::vector<float> q, k, v, query_weights, key_weights, base_pre, base_post;
  };
  Gradients backward(Context& context, const std::vector<float>& statistics,
                     const std::vector<float>& d_out) const;

 private:
  int64_t key_length() const { return problem_.key_length.value_or(problem_.n_key); }

  const reference::AttentionProblem& problem_;
  int64_t q_stride_, kv_stride_;
  ConstHeads heads(const std::vector<float>& f32, const std::vector<BFloat16>& bf16,
                   int64_t n_token, int64_t n_head, int64_t stride) const;

  std::vector<BFloat16> q16_, k16_, v16_;
  std::vector<float> q_, k_, v_, query_weights_, key_weights_, base_pre_, base_post_;
  std::vector<int32_t> query_segments_, key_segments_;
  std::vector<AttentionSequence> sequences_;
};

}  // namespace dcformer::test
