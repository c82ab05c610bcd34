#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dcformer/model/sequence_batch.h"

namespace dcformer {

/// Rows as one flat batch: the ids of all but the last of each row, and their successors as
/// targets.
struct RowBatch {
  std::vector<int32_t> ids;
  std::vector<int32_t> targets;
  SequenceBatch sequences;

  void add(std::span<const int32_t> row) {
    ids.insert(ids.end(), row.begin(), row.end() - 1);
    targets.insert(targets.end(), row.begin() + 1, row.end());
    sequences.append(static_cast<int64_t>(row.size()) - 1);
  }
};

}  // namespace dcformer
