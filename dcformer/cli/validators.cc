#include "dcformer/cli/validators.h"

#include <fmt/format.h>

#include <charconv>

namespace dcformer {
namespace {

template <typename T>
bool parse(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

CLI::Validator path_name() {
  return {[](std::string& text) {
            return text.empty() ? std::string("expected a name, got an empty one") : std::string();
          },
          ""};
}

CLI::Validator whole_number(int64_t low, int64_t high) {
  const std::string range = high == INT64_MAX ? fmt::format("of at least {}", low)
                                              : fmt::format("from {} to {}", low, high);
  return {[=](std::string& text) {
            int64_t value = 0;
            // The library would take a 0 in front for octal digits.
            const bool plain = parse(text, value) && text == std::to_string(value);
            return plain && value >= low && value <= high
                       ? std::string()
                       : fmt::format("expected a whole number {}, got '{}'", range, text);
          },
          range};
}

CLI::Validator number_where(const std::function<bool(double)>& holds, const std::string& expected) {
  return {[=](std::string& text) {
            double value = 0;
            const bool valid = parse(text, value) && holds(value);
            return valid ? std::string()
                         : fmt::format("expected a number {}, got '{}'", expected, text);
          },
          expected};
}

}  // namespace dcformer
