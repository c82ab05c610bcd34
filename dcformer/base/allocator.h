#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace dcformer {

/// Hands out 64-byte aligned, uninitialised memory and keeps what is given back for the next
/// request of about the same size: a training step asks for the same buffers every time, and fresh
/// pages cost more than the arithmetic on them. What it holds in all stays below one and a half
/// times the most that was in use at once, and 64 MiB. Safe to call from several threads. Buffers
/// may outlive the Allocator object: they share its state.
class Allocator {
 public:
  Allocator();
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// `bytes` of memory, given back when the last reference is gone. Throws Error when the system
  /// has none. 0 bytes give a valid pointer that must not be read.
  std::shared_ptr<std::byte> allocate(size_t bytes);

  /// Gives the memory that is not in use back to the system.
  void trim();

  /// Bytes in use, and the largest value that this had so far.
  size_t bytes_in_use() const;
  size_t peak_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dcformer
