#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>

#include "dcformer/data/rows.h"
#include "dcformer/model/language_model.h"

namespace dcformer {

/// Next-token predictions over a fixed set of rows: in each row of n ids, id i is predicted from
/// those before it, for i from 1 to n-1. Every prediction counts the same, whatever batch it was
/// in.
struct Evaluation {
  /// Mean negative log-likelihood in nats a prediction.
  double loss = 0;
  /// The share of predictions whose most likely token is the right one.
  double accuracy = 0;
  int64_t n_prediction = 0;
  /// Set where the rows come from text whose bytes are known.
  std::optional<double> bits_per_byte;

  double perplexity() const { return std::exp(loss); }
};

/// Evaluates all rows, `batch_size` in one pass. `text_bytes` is the size of the text they come
/// from; 0: unknown. None when `interrupted()` is true before the end; it may be empty.
std::optional<Evaluation> evaluate(Context& context, const LanguageModel& model, const RowSet& rows,
                                   int64_t batch_size, int64_t text_bytes,
                                   const std::function<bool()>& interrupted = {});

}  // namespace dcformer
