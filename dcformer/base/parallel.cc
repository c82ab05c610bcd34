#include "dcformer/base/parallel.h"

#include <omp.h>

namespace dcformer {
namespace {

// oneDNN takes omp_get_max_threads() threads where it is called outside a parallel region.
class OneThreadEach {
 public:
  OneThreadEach() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThreadEach() { omp_set_num_threads(before_); }
  OneThreadEach(const OneThreadEach&) = delete;
  OneThreadEach& operator=(const OneThreadEach&) = delete;

 private:
  int before_;
};

// Whether this thread is inside a loop's body: loops within it run serially.
thread_local bool inside_loop = false;

}  // namespace

void parallel_for(Context& context, int64_t n, LoopBody body) {
  if (n <= 0) return;
  const OneThreadEach guard;
  if (n == 1 || inside_loop || context.pool() == nullptr) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  context.pool()->run(n, [&body](int64_t i) {
    inside_loop = true;
    try {
      body(i);
    } catch (...) {
      inside_loop = false;
      throw;
    }
    inside_loop = false;
  });
}

}  // namespace dcformer
