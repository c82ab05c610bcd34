#include "dcformer/base/thread_pool.h"

#include <immintrin.h>
#include <omp.h>

#include <utility>

namespace dcformer {
namespace {

// Loops follow each other within microseconds; a helper looks out for the next for about 50 µs
// before it goes to sleep.
constexpr int kSpins = 1500;

}  // namespace

ThreadPool::ThreadPool(int n_helper) {
  for (int i = 0; i < n_helper; ++i) helpers_.emplace_back([this] { help(); });
}

ThreadPool::~ThreadPool() {
  state_.fetch_or(kEnd, std::memory_order_release);
  state_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::take_items() {
  for (;;) {
    const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= n_ || failed_.load(std::memory_order_relaxed)) return;
    try {
      (*body_)(i);
    } catch (...) {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }
}

void ThreadPool::help() {
  // oneDNN takes its number of threads from here: one a call.
  omp_set_num_threads(1);
  uint64_t last_number = 0;
  int spins = 0;
  for (;;) {
    uint64_t state = state_.load(std::memory_order_acquire);
    if ((state & kEnd) != 0) return;
    const uint64_t number = state >> kNumberShift;
    if ((state & kOpen) != 0 && number != last_number) {
      if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      last_number = number;
      take_items();
      state_.fetch_sub(1, std::memory_order_release);
      spins = 0;
    } else if (spins < kSpins) {
      ++spins;
      _mm_pause();
    } else {
      state_.wait(state, std::memory_order_acquire);
      spins = 0;
    }
  }
}

void ThreadPool::run(int64_t n, LoopBody body) {
  n_ = n;
  body_ = &body;
  next_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  failure_ = nullptr;
  const uint64_t number = (state_.load(std::memory_order_relaxed) >> kNumberShift) + 1;
  state_.store(number << kNumberShift | kOpen, std::memory_order_release);
  state_.notify_all();
  take_items();
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  // Those inside finish the item that they have.
  for (int spins = 0; (state_.load(std::memory_order_acquire) & kCount) != 0; ++spins) {
    if (spins < kSpins) {
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace dcformer
