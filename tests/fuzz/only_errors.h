#pragma once

#include "dcformer/base/error.h"

namespace dcformer::test {

/// Calls f. Error is what bad input is expected to end in; any other exception ends the program.
template <typename F>
void only_errors(F&& f) {
  try {
    f();
  } catch (const Error&) {
  }
}

/// Ends the program when a property does not hold, so that the fuzzer keeps the input.
inline void must_hold(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace dcformer::test
