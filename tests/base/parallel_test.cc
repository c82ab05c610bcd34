#include "dcformer/base/parallel.h"

#include <gmock/gmock.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "dcformer/base/error.h"

namespace dcformer {
namespace {

class ParallelFor : public ::testing::TestWithParam<int> {
 protected:
  Context context_{GetParam()};
};

TEST_P(ParallelFor, CallsEachIndexOnce) {
  for (int64_t n : {0, 1, 2, 7, 64, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(n));
    parallel_for(context_, n, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    for (const auto& count : calls) EXPECT_EQ(count.load(), 1);
  }
}

// Loops in quick succession, so that helpers of one arrive late in the next.
TEST_P(ParallelFor, ManyShortLoops) {
  for (int round = 0; round < 3000; ++round) {
    const int64_t n = 1 + round % 5;
    int calls[5] = {};
    parallel_for(context_, n, [&](int64_t i) { ++calls[i]; });
    for (int64_t i = 0; i < 5; ++i) ASSERT_EQ(calls[i], i < n ? 1 : 0) << round;
  }
}

TEST_P(ParallelFor, NegativeCountsAreEmpty) {
  parallel_for(context_, -3, [&](int64_t) { ADD_FAILURE(); });
}

TEST_P(ParallelFor, RethrowsAndGoesOnWorking) {
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> started{0};
    try {
      parallel_for(context_, 1000, [&](int64_t i) {
        ++started;
        if (i == 5) throw Error("index 5");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "index 5");
    }
    // The indices after the failing one are skipped, but for those already taken. Other threads may
    // run some more before they see it.
    EXPECT_GE(started.load(), 6);
    EXPECT_LE(started.load(), 1000);
  }
  std::atomic<int> sum{0};
  parallel_for(context_, 10, [&](int64_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum.load(), 45);
}

TEST_P(ParallelFor, OneOfManyExceptionsArrives) {
  EXPECT_THROW(parallel_for(context_, 100, [&](int64_t) { throw std::runtime_error("each"); }),
               std::runtime_error);
}

TEST_P(ParallelFor, NestedCallsRunSerially) {
  std::atomic<int> count{0};
  std::atomic<bool> moved{false};
  parallel_for(context_, 8, [&](int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    parallel_for(context_, 16, [&](int64_t) {
      ++count;
      if (context_.n_thread() > 1 && std::this_thread::get_id() != outer) moved = true;
    });
  });
  EXPECT_EQ(count.load(), 8 * 16);
  EXPECT_FALSE(moved.load());
}

TEST_P(ParallelFor, NestedExceptionsArrive) {
  EXPECT_THROW(parallel_for(context_, 4,
                            [&](int64_t) {
                              parallel_for(context_, 4, [](int64_t i) {
                                if (i == 3) throw Error("inner");
                              });
                            }),
               Error);
}

// Libraries that ask OpenMP for its thread count get 1 inside, and what they had before afterwards.
TEST_P(ParallelFor, HoldsLibrariesToOneThread) {
  omp_set_num_threads(3);
  std::atomic<int> most{0};
  parallel_for(context_, 6, [&](int64_t) {
    if (omp_get_max_threads() > 1) most = omp_get_max_threads();
  });
  EXPECT_EQ(most.load(), 0);
  EXPECT_EQ(omp_get_max_threads(), 3);
  EXPECT_THROW(parallel_for(context_, 2, [](int64_t) { throw Error("x"); }), Error);
  EXPECT_EQ(omp_get_max_threads(), 3);
}

TEST_P(ParallelFor, ChunksDependOnSizeAndGrainAlone) {
  for (int64_t n : {0, 1, 5, 10, 11, 19, 20}) {
    std::mutex mutex;
    std::set<std::pair<int64_t, int64_t>> pieces;
    parallel_chunks(context_, n, 10, [&](int64_t begin, int64_t end) {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(pieces.emplace(begin, end).second);
    });
    std::set<std::pair<int64_t, int64_t>> expected;
    for (int64_t begin = 0; begin < n; begin += 10)
      expected.emplace(begin, std::min(begin + 10, n));
    EXPECT_EQ(pieces, expected) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelFor, ::testing::Values(1, 2, 3, 8));

// Four calls that wait for each other can only end on four threads.
TEST(ParallelForThreads, UsesAsManyThreadsAsTheContextHas) {
  Context context(4);
  std::atomic<int> arrived{0};
  parallel_for(context, 4, [&](int64_t) {
    ++arrived;
    while (arrived.load() < 4) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 4);
}

TEST(ParallelForThreads, NeverUsesMore) {
  Context context(2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel_for(context, 200, [&](int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_LE(threads.size(), 2u);
}

TEST(ParallelForThreads, OneThreadGoesInOrder) {
  Context context(1);
  std::vector<int64_t> order;
  parallel_for(context, 5, [&](int64_t i) { order.push_back(i); });
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4));
}

}  // namespace
}  // namespace dcformer
