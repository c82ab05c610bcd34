#include "dcformer/base/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

namespace dcformer {
namespace {

// oneDNN takes omp_get_max_threads() threads where it is called outside a parallel region or in one
// of a single thread.
class OneThreadEach {
 public:
  OneThreadEach() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThreadEach() { omp_set_num_threads(before_); }
  OneThreadEach(const OneThreadEach&) = delete;
  OneThreadEach& operator=(const OneThreadEach&) = delete;

 private:
  int before_;
};

}  // namespace

void parallel_for(Context& context, int64_t n, LoopBody body) {
  if (n <= 0) return;
  const OneThreadEach guard;
  const int threads = static_cast<int>(std::min<int64_t>(context.n_thread(), n));
  if (threads == 1 || omp_in_parallel() != 0) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
#pragma omp parallel num_threads(threads)
  {
    for (;;) {
      const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n || failed.load(std::memory_order_relaxed)) break;
      try {
        body(i);
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace dcformer
