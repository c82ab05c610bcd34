#include "tests/cli/kill_cases.h"

namespace dcformer::test {
namespace {

TEST_F(KilledRuns, TwentyKillsLoseNothing) { kill_and_compare(20, 1); }

}  // namespace
}  // namespace dcformer::test
