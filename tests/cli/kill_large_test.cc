#include "tests/cli/kill_cases.h"

namespace dcformer::test {
namespace {

TEST_F(KilledRuns, TwoHundredKillsLoseNothing) { kill_and_compare(200, 2); }

}  // namespace
}  // namespace dcformer::test
