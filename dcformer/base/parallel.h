#pragma once

#include <cstdint>

#include "dcformer/base/context.h"
#include "dcformer/base/thread_pool.h"

namespace dcformer {

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
