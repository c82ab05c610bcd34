#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace dcformer {

/// Parses JSON. Throws Error, naming `where` and the byte, for text that is not JSON, a key that
/// occurs twice in an object, or nesting deeper than 64.
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// parse_json of a file.
nlohmann::json read_json_file(const std::string& path);

}  // namespace dcformer
