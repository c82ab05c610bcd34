#include "dcformer/base/context.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "dcformer/base/check.h"
#include "dcformer/base/isa.h"

namespace dcformer {
namespace {

// Processors granted by the cgroup that is mounted at its usual place: version 2 writes
// "QUOTA PERIOD" or "max PERIOD" into one file, version 1 two files. 0: no limit found.
double cgroup_quota() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period)
    return quota == "max" || period <= 0 ? 0 : std::atof(quota.c_str()) / period;
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double microseconds = 0;
  if (v1_quota >> microseconds && v1_period >> period && microseconds > 0 && period > 0)
    return microseconds / period;
  return 0;
}

}  // namespace

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int processors = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  const double quota = cgroup_quota();
  if (quota > 0) processors = std::min(processors, static_cast<int>(std::ceil(quota)));
  return std::max(processors, 1);
}

Context::Context(int n_thread) : n_thread_(n_thread == 0 ? available_threads() : n_thread) {
  require(n_thread_ >= 1 && n_thread_ <= 1024, "number of threads is {}, expected 1 to 1024",
          n_thread);
  effective_isa();
  if (n_thread_ > 1) pool_ = std::make_unique<ThreadPool>(n_thread_ - 1);
}

}  // namespace dcformer
