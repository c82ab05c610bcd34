#pragma once

#include <cstdint>

#include "tests/cli/small_run.h"

namespace dcformer::test {

/// Trains the same run again and again, ends the process at random moments with kill -9 and resumes
/// it, until `n_kill` were sent in all. Expects every resume to work, and each finished run to have
/// left what an undisturbed one leaves: the weights' bytes, and the logs but for their time fields.
class KilledRuns : public SmallRun {
 protected:
  void kill_and_compare(int n_kill, uint64_t seed);
};

}  // namespace dcformer::test
