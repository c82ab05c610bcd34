#pragma once

#include <stdexcept>
#include <string>

namespace dcformer {

/// The one exception type of the library. Its text says what was wrong, where (file, tensor, key,
/// line) and what was expected; the command line tool prints it as `error: …` and exits with 1.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

}  // namespace dcformer
