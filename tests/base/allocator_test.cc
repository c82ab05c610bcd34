#include "dcformer/base/allocator.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "dcformer/base/error.h"
#include "tests/support/sanitizer.h"

namespace dcformer {
namespace {

TEST(Allocator, AlignsAndHoldsWhatIsAsked) {
  Allocator allocator;
  std::vector<std::shared_ptr<std::byte>> blocks;
  std::vector<size_t> sizes{0, 1, 63, 64, 65, 127, 4095, 4097, 100000, size_t{2} << 20, 5000001};
  for (size_t size : sizes) {
    blocks.push_back(allocator.allocate(size));
    ASSERT_NE(blocks.back(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().get()) % 64, 0u) << size;
    std::memset(blocks.back().get(), static_cast<int>(blocks.size()), size);
  }
  for (size_t i = 0; i < sizes.size(); ++i)
    for (size_t x = 0; x < sizes[i]; x += 61)
      ASSERT_EQ(blocks[i].get()[x], static_cast<std::byte>(i + 1));
}

TEST(Allocator, GivesBackTheSameMemory) {
  Allocator allocator;
  std::byte* first = nullptr;
  {
    const auto block = allocator.allocate(5000);
    first = block.get();
  }
  // Nearly the same size.
  EXPECT_EQ(allocator.allocate(5010).get(), first);
  const auto held = allocator.allocate(5000);
  EXPECT_EQ(held.get(), first);
  EXPECT_NE(allocator.allocate(5000).get(), first);
}

// The system hands out large blocks as fresh pages of zeros; a block that was kept still has its
// values.
TEST(Allocator, KeepsLargeBlocks) {
  constexpr size_t kBytes = size_t{64} << 20;
  Allocator allocator;
  allocator.allocate(kBytes).get()[kBytes / 2] = std::byte{9};
  EXPECT_EQ(allocator.allocate(kBytes).get()[kBytes / 2], std::byte{9});
}

TEST(Allocator, TrimReleasesLargeBlocks) {
  constexpr size_t kBytes = size_t{64} << 20;
  Allocator allocator;
  allocator.allocate(kBytes).get()[kBytes / 2] = std::byte{9};
  allocator.trim();
  EXPECT_EQ(allocator.allocate(kBytes).get()[kBytes / 2], std::byte{0});
}

TEST(Allocator, CountsBytes) {
  Allocator allocator;
  EXPECT_EQ(allocator.bytes_in_use(), 0u);
  auto a = allocator.allocate(1000);
  const size_t one = allocator.bytes_in_use();
  EXPECT_GE(one, 1000u);
  EXPECT_LE(one, 1000u * 9 / 8 + 64);
  auto b = allocator.allocate(1000);
  EXPECT_EQ(allocator.bytes_in_use(), 2 * one);
  auto copy = b;
  b.reset();
  EXPECT_EQ(allocator.bytes_in_use(), 2 * one);
  copy.reset();
  a.reset();
  EXPECT_EQ(allocator.bytes_in_use(), 0u);
  EXPECT_EQ(allocator.peak_bytes(), 2 * one);
}

// The process's memory by the kernel's account, in bytes.
size_t resident() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t pages = 0;
  file >> total >> pages;
  return pages * 4096;
}

TEST(Allocator, SizesThatVaryDoNotPileUp) {
  if (test::kAddressSanitizer) GTEST_SKIP() << "the sanitizer holds freed memory";
  Allocator allocator;
  const size_t before = resident();
  // One after the other: 24 sizes from 16 to 62 MiB, 0.9 GiB in all.
  for (size_t mib = 16; mib < 64; mib += 2) {
    const auto block = allocator.allocate(mib << 20);
    std::memset(block.get(), 1, mib << 20);
  }
  EXPECT_LE(allocator.peak_bytes(), size_t{64} << 20);
  EXPECT_LE(resident(), before + (size_t{192} << 20));
}

TEST(Allocator, TrimKeepsWhatIsInUse) {
  Allocator allocator;
  const auto kept = allocator.allocate(300);
  std::memset(kept.get(), 7, 300);
  allocator.allocate(300).reset();
  allocator.trim();
  EXPECT_EQ(kept.get()[299], std::byte{7});
  EXPECT_GE(allocator.bytes_in_use(), 300u);
}

TEST(Allocator, BuffersOutliveIt) {
  std::shared_ptr<std::byte> block;
  {
    Allocator allocator;
    block = allocator.allocate(100);
  }
  std::memset(block.get(), 1, 100);
  EXPECT_EQ(block.get()[99], std::byte{1});
}

TEST(Allocator, SaysWhenThereIsNoMemory) {
  Allocator allocator;
  for (size_t bytes : {size_t{1} << 48, (size_t{1} << 48) - 1, SIZE_MAX}) {
    try {
      allocator.allocate(bytes);
      ADD_FAILURE() << bytes;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("out of memory"));
    }
    EXPECT_EQ(allocator.bytes_in_use(), 0u);
  }
  EXPECT_NE(allocator.allocate(10), nullptr);
}

TEST(Allocator, ServesSeveralThreads) {
  Allocator allocator;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 500; ++round) {
        const auto block = allocator.allocate(64 + 64 * (round % 5));
        std::memset(block.get(), t, 64);
        for (int x = 0; x < 64; ++x) ASSERT_EQ(block.get()[x], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.bytes_in_use(), 0u);
}

}  // namespace
}  // namespace dcformer
