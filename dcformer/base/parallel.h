#pragma once

#include <cstdint>
#include <type_traits>

#include "dcformer/base/context.h"

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

/// Calls body(0) … body(n-1), each once, on the Context's threads; starts in ascending order, each
/// thread taking the next one when it is free. Returns when all are done. The first exception that
/// a call throws is rethrown here, later indices are then skipped. Calls inside a call run
/// serially. While it runs, libraries that use OpenMP themselves are held to one thread a call,
/// with one thread here too: their results must not depend on our thread count.
void parallel_for(Context& context, int64_t n, LoopBody body);

/// parallel_for over [0, n) in pieces of `grain` items: body(begin, end). The pieces depend on n
/// and grain alone, so a sum kept per piece has the same bits at any number of threads.
template <typename F>
void parallel_chunks(Context& context, int64_t n, int64_t grain, F&& body) {
  parallel_for(context, (n + grain - 1) / grain, [&](int64_t piece) {
    const int64_t begin = piece * grain;
    body(begin, begin + grain < n ? begin + grain : n);
  });
}

}  // namespace dcformer
