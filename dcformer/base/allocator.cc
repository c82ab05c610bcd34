#include "dcformer/base/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/base/in_bytes.h"

namespace dcformer {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
// Free memory that is kept beside what was in use at most, and half of that.
constexpr size_t kSlack = size_t{64} << 20;

// Sizes are rounded up to 1/8 of their power of two, so that buffers of nearly equal size are
// shared.
size_t rounded_size(size_t bytes) {
  bytes = std::max(bytes, kAlignment);
  size_t power = kAlignment;
  while (power <= bytes / 2) power *= 2;
  const size_t step = std::max(power / 8, kAlignment);
  return (bytes + step - 1) / step * step;
}

[[noreturn]] void fail_to_allocate(size_t bytes) {
  fail(
      "out of memory: could not allocate {}; in training a smaller train.batch_size or "
      "train.activation_checkpointing takes less",
      in_bytes(static_cast<double>(bytes)));
}

std::byte* system_allocate(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const size_t padded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, padded);
  if (memory == nullptr) fail_to_allocate(bytes);
  if (bytes >= kHugePage) madvise(memory, padded, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

}  // namespace

struct Allocator::State {
  std::mutex mutex;
  std::map<size_t, std::vector<std::byte*>> free_blocks;
  size_t in_use = 0;
  size_t peak = 0;
  size_t free_bytes = 0;

  ~State() { release_free(0); }

  // Gives free blocks back to the system, the largest first, until at most `kept` bytes are left.
  void release_free(size_t kept) {
    while (free_bytes > kept) {
      const auto largest = std::prev(free_blocks.end());
      if (largest->second.empty()) {
        free_blocks.erase(largest);
        continue;
      }
      std::free(largest->second.back());
      largest->second.pop_back();
      free_bytes -= largest->first;
    }
  }

  std::byte* take(size_t size) {
    {
      std::lock_guard lock(mutex);
      in_use += size;
      peak = std::max(peak, in_use);
      auto found = free_blocks.find(size);
      if (found != free_blocks.end() && !found->second.empty()) {
        std::byte* block = found->second.back();
        found->second.pop_back();
        free_bytes -= size;
        return block;
      }
      // Shapes that vary would otherwise leave a free block of every size behind.
      const size_t held = peak + peak / 2 + kSlack;
      release_free(held > in_use ? held - in_use : 0);
    }
    try {
      return allocate_or_make_room(size);
    } catch (...) {
      std::lock_guard lock(mutex);
      in_use -= size;
      throw;
    }
  }

  std::byte* allocate_or_make_room(size_t size) {
    try {
      return system_allocate(size);
    } catch (const Error&) {
      std::lock_guard lock(mutex);
      if (free_bytes == 0) throw;
      release_free(0);
    }
    return system_allocate(size);
  }

  void give_back(std::byte* block, size_t size) {
    std::lock_guard lock(mutex);
    in_use -= size;
    free_bytes += size;
    free_blocks[size].push_back(block);
  }
};

Allocator::Allocator() : state_(std::make_shared<State>()) {}
Allocator::~Allocator() = default;

std::shared_ptr<std::byte> Allocator::allocate(size_t bytes) {
  if (bytes >= size_t{1} << 48) fail_to_allocate(bytes);
  const size_t size = rounded_size(bytes);
  std::byte* block = state_->take(size);
  return {block, [state = state_, size](std::byte* memory) { state->give_back(memory, size); }};
}

void Allocator::trim() {
  std::lock_guard lock(state_->mutex);
  state_->release_free(0);
}

size_t Allocator::bytes_in_use() const {
  std::lock_guard lock(state_->mutex);
  return state_->in_use;
}

size_t Allocator::peak_bytes() const {
  std::lock_guard lock(state_->mutex);
  return state_->peak;
}

}  // namespace dcformer
