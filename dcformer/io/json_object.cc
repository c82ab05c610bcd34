#include "dcformer/io/json_object.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "dcformer/base/check.h"
#include "dcformer/base/utf8.h"

namespace dcformer {
namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string shortened(const nlohmann::json& value) {
  return shorten_utf8(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 60);
}

}  // namespace

JsonObject::JsonObject(const nlohmann::json& json, std::string where)
    : json_(json), where_(std::move(where)) {
  require(json_.is_object(), "{}: expected a JSON object, got {}", where_, shortened(json_));
}

bool JsonObject::has(const std::string& key) const {
  const auto found = json_.find(key);
  return found != json_.end() && !found->is_null();
}

const nlohmann::json* JsonObject::find(const std::string& key) {
  known_.push_back(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void JsonObject::fail_key(const std::string& key, const std::string& expected) const {
  fail("{}.{}: expected {}, got {}", where_, key, expected,
       shortened(json_.value(key, nlohmann::json())));
}

bool JsonObject::boolean(const std::string& key, bool value) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return value;
  if (!found->is_boolean()) fail_key(key, "true or false");
  return found->get<bool>();
}

int64_t JsonObject::integer(const std::string& key, int64_t value, int64_t low, int64_t high) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return value;
  const std::string expected = fmt::format("a whole number from {} to {}", low, high);
  const bool whole_float = found->is_number_float() && std::abs(found->get<double>()) < 9e15 &&
                           std::floor(found->get<double>()) == found->get<double>();
  if (!found->is_number_integer() && !whole_float) fail_key(key, expected);
  const bool too_large =
      found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX};
  const int64_t number = too_large ? INT64_MAX : found->get<int64_t>();
  if (too_large || number < low || number > high) fail_key(key, expected);
  return number;
}

double JsonObject::number(const std::string& key, double value, double low, double high) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return value;
  const bool in_range =
      found->is_number() && found->get<double>() >= low && found->get<double>() <= high;
  if (!in_range) fail_key(key, fmt::format("a number from {} to {}", low, high));
  return found->get<double>();
}

std::string JsonObject::text(const std::string& key, const std::string& value) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return value;
  if (!found->is_string()) fail_key(key, "a text");
  return found->get<std::string>();
}

std::string JsonObject::choice(const std::string& key, const std::string& value,
                               const std::vector<std::string>& choices) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return value;
  if (!found->is_string() ||
      std::find(choices.begin(), choices.end(), found->get<std::string>()) == choices.end())
    fail_key(key, fmt::format("one of {}", fmt::join(choices, ", ")));
  return found->get<std::string>();
}

std::vector<std::string> JsonObject::texts(const std::string& key) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return {};
  if (found->is_string()) return {found->get<std::string>()};
  if (!found->is_array()) fail_key(key, "a text or a list of texts");
  std::vector<std::string> result;
  for (const nlohmann::json& entry : *found) {
    if (!entry.is_string()) fail_key(key, "a text or a list of texts");
    result.push_back(entry.get<std::string>());
  }
  return result;
}

const nlohmann::json& JsonObject::raw(const std::string& key) {
  static const nlohmann::json null;
  const nlohmann::json* found = find(key);
  return found == nullptr ? null : *found;
}

std::vector<std::string> JsonObject::unknown_keys() const {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : json_.items())
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) unknown.push_back(key);
  return unknown;
}

void JsonObject::require_no_unknown_keys() const {
  const std::vector<std::string> unknown = unknown_keys();
  if (unknown.empty()) return;
  const std::string near = nearest_word(unknown.front(), known_);
  fail("{}: unknown key '{}'{}", where_, shorten_utf8(unknown.front(), 60),
       near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near));
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word.substr(0, 100), candidate);
    if (distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

}  // namespace dcformer
