#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dcformer {

/// Reads the keys of one JSON object of a configuration, with errors that name the file and the
/// key, and remembers which keys were asked for. A key that is absent or null gives the default.
class JsonObject {
 public:
  /// `where` names the object in messages ("run.json: model"). Throws Error unless `json` is an
  /// object.
  JsonObject(const nlohmann::json& json, std::string where);

  bool has(const std::string& key) const;
  bool boolean(const std::string& key, bool value);
  /// Throws Error when the number is not whole or outside [low, high].
  int64_t integer(const std::string& key, int64_t value, int64_t low, int64_t high);
  /// Throws Error when the number is not finite or outside [low, high].
  double number(const std::string& key, double value, double low, double high);
  std::string text(const std::string& key, const std::string& value);
  /// One of the choices; throws Error naming them for another.
  std::string choice(const std::string& key, const std::string& value,
                     const std::vector<std::string>& choices);
  /// A list of texts; a single text counts as a list of one.
  std::vector<std::string> texts(const std::string& key);
  /// The raw value, or null when absent.
  const nlohmann::json& raw(const std::string& key);

  /// Keys present that nobody asked for.
  std::vector<std::string> unknown_keys() const;
  /// Throws Error for the first unknown key, naming the nearest known one.
  void require_no_unknown_keys() const;

  const std::string& where() const { return where_; }
  /// Throws Error about a key: "WHERE.KEY: expected EXPECTED, got VALUE".
  [[noreturn]] void fail_key(const std::string& key, const std::string& expected) const;

 private:
  const nlohmann::json* find(const std::string& key);

  nlohmann::json json_;
  std::string where_;
  std::vector<std::string> known_;
};

/// The candidate with the least edit distance to `word`, or "" where none is near.
std::string nearest_word(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace dcformer
