#pragma once

#include <fmt/format.h>

#include <utility>

#include "dcformer/base/error.h"

namespace dcformer {

/// Throws Error with the formatted text.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error with the formatted text unless `condition` holds. For faults of input and of
/// callers alike; the text is formatted only when it is needed.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(format, std::forward<Args>(args)...);
}

}  // namespace dcformer
