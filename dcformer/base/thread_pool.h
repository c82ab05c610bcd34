#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <type_traits>
#include <vector>

namespace dcformer {

/// A borrowed callable `void(int64_t)`: two pointers, no allocation. Must not outlive what it was
/// made from.
class LoopBody {
 public:
  template <typename F>
  requires std::is_invocable_v<F&, int64_t> LoopBody(
      F&& body)  // NOLINT: implicit on purpose, so that lambdas can be passed directly
      : object_(const_cast<void*>(static_cast<const void*>(&body))),
        call_([](void* object, int64_t i) {
          (*static_cast<std::remove_reference_t<F>*>(object))(i);
        }) {}

  void operator()(int64_t i) const { call_(object_, i); }

 private:
  void* object_;
  void (*call_)(void*, int64_t);
};

/// Threads that help the one that drives them through loops. The driver takes items too and waits
/// only for helpers that have begun one: a helper that the system does not run just then costs
/// nothing, where a barrier of all threads would wait for it while other work has its core.
class ThreadPool {
 public:
  explicit ThreadPool(int n_helper);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Calls body(0) … body(n-1), starting in ascending order. One driver at a time.
  void run(int64_t n, LoopBody body);

 private:
  void help();
  void take_items();

  // Helpers inside the loop, whether it takes more of them, that the pool ends, and the loop's
  // number.
  static constexpr uint64_t kOpen = 1 << 16;
  static constexpr uint64_t kEnd = 1 << 17;
  static constexpr uint64_t kCount = kOpen - 1;
  static constexpr int kNumberShift = 18;

  std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  int64_t n_ = 0;
  const LoopBody* body_ = nullptr;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::vector<std::thread> helpers_;
};

}  // namespace dcformer
