#pragma once

#include <string>
#include <vector>

#include "dcformer/train/run_config.h"

namespace dcformer {

/// A key whose value, defaults put in, is not the same in two run files.
struct RunDifference {
  /// `SECTION.KEY`
  std::string key;
  std::string before;
  std::string after;
  /// A resumed run may take the new value: it goes on as one that had it from there on.
  bool allowed = false;

  /// "train.steps was 20 and is 40"
  std::string text() const { return key + " was " + before + " and is " + after; }
};

/// All differences, in the order of sections and keys. Allowed are the schedule's length (`steps`,
/// `warmup_steps`), what is logged, evaluated and kept, how activations are kept, batch_size and
/// accumulation with the same product, and the paths of data (whose contents are compared by their
/// hash elsewhere).
std::vector<RunDifference> run_differences(const RunConfig& before, const RunConfig& after);

}  // namespace dcformer
