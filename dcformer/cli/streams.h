#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace dcformer {

/// Makes sure that the descriptors 0 to 2 are open, so that no file of a run gets one of their
/// numbers and with it what is meant for a terminal.
void open_standard_streams();

/// Prints to standard error. What cannot be printed there is lost: it must not end a run.
template <typename... Args>
void print_error(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Writes to standard output, which keeps some of it back until flush_output. Throws Error when it
/// cannot.
void write_output(std::string_view text);

/// Passes on what standard output has kept back. Throws Error when that cannot be written.
void flush_output();

}  // namespace dcformer
