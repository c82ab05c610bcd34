#include "dcformer/train/evaluation.h"

#include <algorithm>
#include <numbers>

#include "dcformer/train/row_batch.h"

namespace dcformer {

std::optional<Evaluation> evaluate(Context& context, const LanguageModel& model, const RowSet& rows,
                                   int64_t batch_size, int64_t text_bytes,
                                   const std::function<bool()>& interrupted) {
  CrossEntropySum total;
  for (int64_t r = 0; r < rows.n_row(); r += batch_size) {
    if (interrupted && interrupted()) return std::nullopt;
    RowBatch batch;
    for (int64_t i = r; i < std::min(rows.n_row(), r + batch_size); ++i) batch.add(rows.row(i));
    const CrossEntropySum sum = model.loss(context, batch.ids, batch.targets, batch.sequences);
    total.loss += sum.loss;
    total.n_target += sum.n_target;
    total.n_correct += sum.n_correct;
  }
  Evaluation evaluation;
  const auto n = static_cast<double>(total.n_target);
  evaluation.loss = total.loss / n;
  evaluation.accuracy = static_cast<double>(total.n_correct) / n;
  evaluation.n_prediction = total.n_target;
  if (text_bytes > 0)
    evaluation.bits_per_byte = total.loss / (std::numbers::ln2 * static_cast<double>(text_bytes));
  return evaluation;
}

}  // namespace dcformer
