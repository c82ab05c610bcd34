#include "dcformer/io/json_file.h"

#include <set>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/utf8.h"

namespace dcformer {
namespace {

constexpr int kMaxDepth = 64;

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    require(depth <= kMaxDepth, "{}: nested deeper than {}", where, kMaxDepth);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key)
      require(keys.back().insert(parsed.get<std::string>()).second, "{}: key '{}' occurs twice",
              where, shorten_utf8(parsed.get<std::string>(), 60));
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception& e) {
    // Without the library's "[json.exception…] " in front; it quotes all of the token that failed,
    // however long.
    const std::string_view what = e.what();
    fail("{}: not valid JSON: {}", where, shorten_utf8(what.substr(what.find(' ') + 1), 300));
  }
}

nlohmann::json read_json_file(const std::string& path) { return parse_json(read_file(path), path); }

}  // namespace dcformer
