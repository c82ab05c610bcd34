#include "dcformer/base/context.h"

#include <gmock/gmock.h>
#include <hwy/targets.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "dcformer/base/error.h"
#include "dcformer/base/isa.h"

namespace dcformer {
namespace {

TEST(Context, CountsItsThreads) {
  EXPECT_EQ(Context(3).n_thread(), 3);
  EXPECT_EQ(Context().n_thread(), available_threads());
}

TEST(Context, RefusesImpossibleCounts) {
  for (int n_thread : {-1, 1025}) {
    try {
      Context context(n_thread);
      ADD_FAILURE() << n_thread;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("expected 1 to 1024"));
    }
  }
}

TEST(Context, AvailableThreadsFollowTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(available_threads(), 1);
  EXPECT_LE(available_threads(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(available_threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(Context, KeepsOneServiceOfAType) {
  struct Counter {
    int value = 0;
  };
  struct Other {
    int value = 7;
  };
  Context context(1);
  context.service<Counter>().value = 5;
  EXPECT_EQ(context.service<Counter>().value, 5);
  EXPECT_EQ(context.service<Other>().value, 7);
  EXPECT_EQ(&context.service<Counter>(), &context.service<Counter>());
  Context second(1);
  EXPECT_EQ(second.service<Counter>().value, 0);
}

// Whether the system lists all of these among the processor's flags.
bool has_flags(const std::vector<std::string>& names) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return (line + " ").find(" " + name + " ") != std::string::npos;
    });
  }
  return false;
}

TEST(Isa, IsWhatTheProcessorHasWithinTheLimit) {
  Isa expected = Isa::avx2;
  if (has_flags({"avx512f", "avx512bw", "avx512dq", "avx512vl"})) expected = Isa::avx512;
  if (has_flags({"avx512f", "avx512_bf16"})) expected = Isa::avx512_bf16;
  if (has_flags({"avx512_bf16", "amx_tile", "amx_bf16"})) expected = Isa::amx;
  const char* variable = std::getenv("DCFORMER_MAX_ISA");
  const std::string limit = variable == nullptr ? "" : variable;
  if (limit == "avx2") expected = Isa::avx2;
  if (limit == "avx512") expected = std::min(expected, Isa::avx512);
  if (limit == "avx512_bf16") expected = std::min(expected, Isa::avx512_bf16);
  EXPECT_EQ(effective_isa(), expected);
  EXPECT_EQ(has_bf16_products(), expected >= Isa::avx512_bf16);
}

TEST(IsaDeathTest, RefusesAnUnknownLimit) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("DCFORMER_MAX_ISA", "mmx", 1);
        try {
          Context context(1);
        } catch (const Error& error) {
          fprintf(stderr, "%s", error.what());
          exit(3);
        }
        exit(0);
      },
      ::testing::ExitedWithCode(3),
      "DCFORMER_MAX_ISA is 'mmx', expected avx2, avx512, avx512_bf16 or amx");
}

TEST(IsaDeathTest, TakesTheLimitFromTheEnvironment) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("DCFORMER_MAX_ISA", "avx2", 1);
        if (effective_isa() != Isa::avx2 || has_bf16_products()) exit(1);
        if ((hwy::SupportedTargets() & (HWY_AVX3 | HWY_AVX3_DL)) != 0) exit(2);
        exit(dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx2 ? 0 : 4);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace dcformer
