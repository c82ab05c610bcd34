#include "dcformer/base/context.h"

#include <gmock/gmock.h>
#include <hwy/targets.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

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

TEST(Isa, HonoursTheLimit) {
  const char* limit = std::getenv("DCFORMER_MAX_ISA");
  if (limit != nullptr && std::string(limit) == "avx2") {
    EXPECT_EQ(effective_isa(), Isa::avx2);
    EXPECT_FALSE(has_bf16_products());
  } else {
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    EXPECT_EQ(effective_isa(), wide ? Isa::avx512 : Isa::avx2);
  }
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
      ::testing::ExitedWithCode(3), "DCFORMER_MAX_ISA is 'mmx', expected avx2 or avx512");
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
