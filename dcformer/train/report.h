#pragma once

#include <string>

namespace dcformer {

/// Draws a run's curves into `report.svg` of its folder: loss (training and validation), gradient
/// norm, learning rate and tokens per second over the steps, from `metrics.jsonl` and
/// `evaluations.jsonl`. What is missing there or cut short, and values that are not finite, are
/// left out. A curve has at most 1000 points, each the mean of a stretch of steps where there are
/// more. Throws Error naming the file that cannot be read or written.
void write_report(const std::string& run_folder);

}  // namespace dcformer
