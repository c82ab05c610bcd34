#pragma once

#include <memory>
#include <mutex>
#include <typeindex>
#include <unordered_map>

#include "dcformer/base/allocator.h"
#include "dcformer/base/thread_pool.h"

namespace dcformer {

/// What an operation needs from its surroundings: the number of threads, memory, and the caches of
/// the operations (see `service`). Passed explicitly; there are no globals. One compute thread
/// drives a Context. Random numbers need no state here: they are a function of a key (see
/// random.h).
class Context {
 public:
  /// `n_thread` 0 takes available_threads(). Throws Error where the processor lacks AVX2 or
  /// DCFORMER_MAX_ISA is not understood.
  explicit Context(int n_thread = 0);

  int n_thread() const { return n_thread_; }
  Allocator& allocator() { return allocator_; }
  /// The helpers of parallel_for; null with one thread.
  ThreadPool* pool() { return pool_.get(); }

  /// The one object of type T that belongs to this Context, made at first use (a cache of compiled
  /// products, say).
  template <typename T>
  T& service() {
    std::lock_guard lock(services_mutex_);
    std::shared_ptr<void>& slot = services_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>();
    return *static_cast<T*>(slot.get());
  }

 private:
  int n_thread_;
  Allocator allocator_;
  std::mutex services_mutex_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> services_;
  std::unique_ptr<ThreadPool> pool_;
};

/// The processors that this process may use: its affinity mask, and a cgroup's quota rounded up.
/// At least 1.
int available_threads();

}  // namespace dcformer
