#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

namespace dcformer {

// What the values of options are held to; another value is wrong usage.

/// The name of a file or folder: not empty.
CLI::Validator path_name();

/// A whole number in decimal digits, none of them a 0 in front, from `low` to `high`.
CLI::Validator whole_number(int64_t low, int64_t high = INT64_MAX);

/// A number for which `holds` is true; `expected` says which ones those are.
CLI::Validator number_where(const std::function<bool(double)>& holds, const std::string& expected);

}  // namespace dcformer
