#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dcformer/base/context.h"
#include "dcformer/data/rows.h"
#include "dcformer/text/tokenizer.h"
#include "dcformer/train/run_config.h"

namespace dcformer {

/// What a run learns from.
struct TrainingData {
  RowSet training;
  std::optional<RowSet> validation;
  /// Bytes of the validation text.
  int64_t validation_bytes = 0;
  std::shared_ptr<const Tokenizer> tokenizer;

  /// Equal for the same training and validation rows alone.
  std::string hash() const;
};

/// Reads the data of a run and prepares its tokenizer (training one where asked; a resumed run
/// takes that of `checkpoint`). Throws Error for texts that are missing, unreadable or too short.
TrainingData prepare_data(Context& context, const DataConfig& config,
                          const std::optional<std::string>& checkpoint);

}  // namespace dcformer
