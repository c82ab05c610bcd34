#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "dcformer/io/json_file.h"
#include "dcformer/io/json_object.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using test::expect_error;

TEST(JsonFile, ParsesAndNamesItsFile) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "a.json") << R"({"x": [1, {"y": null}], "z": {"x": 2}})";
  const nlohmann::json json = read_json_file(folder / "a.json");
  EXPECT_EQ(json["x"][0], 1);
  EXPECT_EQ(json["z"]["x"], 2);
  std::ofstream(folder / "b.json") << "{\"x\": 1,\n \"y\" 2}";
  expect_error([&] { read_json_file(folder / "b.json"); }, {folder / "b.json", "line 2"});
  expect_error([&] { read_json_file(folder / "c.json"); }, {folder / "c.json", "No such file"});
  expect_error([&] { read_json_file(folder.path()); }, {folder.path(), "folder"});
}

TEST(JsonFile, RefusesWhatIsNotJson) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "nul", "1 2", "\"\\u12\"",
                           "\"\x80\"", "{\"a\":1}{}", "NaN", "1e999", "'a'", "[1}", "\"\n\""})
    expect_error([&] { parse_json(text, "the text"); }, {"the text: not valid JSON"});
}

TEST(JsonFile, RefusesAKeyThatOccursTwice) {
  const char* twice = R"({"a": {"b": 1, "c": {"b": 2}, "b": 3}})";
  expect_error([&] { parse_json(twice, "x"); }, {"x: ", "'b' occurs twice"});
  // In different objects it is no repetition, before, within and after one another.
  EXPECT_NO_THROW(parse_json(R"([{"b": {"b": 1}}, {"b": 2}, {"b": {"c": 1}, "c": 1}])", "x"));
}

TEST(JsonFile, RefusesDeepNesting) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "x"));
  expect_error([&] { parse_json(nested(66), "x"); }, {"x: nested deeper than 64"});
  std::string objects;
  for (int i = 0; i < 100; ++i) objects += "{\"a\":";
  expect_error([&] { parse_json(objects, "x"); }, {"x: nested deeper than 64"});
  // No end of stack either.
  expect_error([&] { parse_json(nested(1 << 22), "x"); }, {"x: nested deeper"});
}

TEST(JsonFile, QuotesNoMoreThanALine) {
  const std::string long_token(100000, 'x');
  for (const std::string& text :
       {"\"" + long_token, "{\"" + long_token + "\":1,\"" + long_token + "\":2}"}) {
    try {
      parse_json(text, "x");
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_LT(std::string(e.what()).size(), 500u);
    }
  }
}

class JsonObjectTest : public ::testing::Test {
 protected:
  JsonObject object(const char* text) { return JsonObject(parse_json(text, "text"), "run"); }
};

TEST_F(JsonObjectTest, GivesDefaultsForAbsentAndNull) {
  JsonObject json = object(R"({"n": null})");
  EXPECT_EQ(json.integer("n", 7, 0, 9), 7);
  EXPECT_EQ(json.integer("absent", -7, 0, 9), -7);
  EXPECT_TRUE(json.boolean("n", true));
  EXPECT_EQ(json.number("n", 0.5, 0, 1), 0.5);
  EXPECT_EQ(json.text("n", "x"), "x");
  EXPECT_EQ(json.choice("n", "x", {"y"}), "x");
  EXPECT_TRUE(json.texts("n").empty());
  EXPECT_TRUE(json.raw("n").is_null());
  EXPECT_FALSE(json.has("n"));
}

TEST_F(JsonObjectTest, ReadsIntegersWithinTheirRange) {
  JsonObject json =
      object(R"({"a": 5, "b": -3, "c": 2e3, "d": 2.5, "e": 18446744073709551615, "f": true,
                 "g": "5", "h": 1e300, "i": 9223372036854775807, "j": -9223372036854775808})");
  EXPECT_EQ(json.integer("a", 0, 5, 5), 5);
  EXPECT_EQ(json.integer("b", 0, -3, 0), -3);
  EXPECT_EQ(json.integer("c", 0, 0, 2000), 2000);
  const int64_t low = std::numeric_limits<int64_t>::min();
  const int64_t high = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(json.integer("i", 0, low, high), high);
  EXPECT_EQ(json.integer("j", 0, low, high), low);
  expect_error([&] { json.integer("a", 0, 6, 9); }, {"run.a: ", "whole number from 6 to 9", "5"});
  expect_error([&] { json.integer("a", 0, 0, 4); }, {"run.a: ", "from 0 to 4", "5"});
  for (const char* key : {"d", "e", "f", "g", "h"})
    expect_error([&] { json.integer(key, 0, low, high); }, {std::string("run.") + key, "whole"});
}

TEST_F(JsonObjectTest, ReadsTheOtherTypes) {
  JsonObject json = object(
      R"({"n": 0.5, "i": 3, "t": "x", "b": false, "l": ["x", "y"], "m": ["x", 1], "o": {}})");
  EXPECT_EQ(json.number("n", 0, 0, 1), 0.5);
  EXPECT_EQ(json.number("i", 0, 0, 3), 3.0);
  expect_error([&] { json.number("i", 0, 0, 2.5); }, {"run.i: ", "number from 0 to 2.5", "3"});
  expect_error([&] { json.number("t", 0, 0, 1); }, {"run.t"});
  EXPECT_FALSE(json.boolean("b", true));
  expect_error([&] { json.boolean("i", true); }, {"run.i: expected true or false, got 3"});
  EXPECT_EQ(json.text("t", ""), "x");
  expect_error([&] { json.text("b", ""); }, {"run.b: expected a text, got false"});
  EXPECT_EQ(json.choice("t", "y", {"x", "y"}), "x");
  expect_error([&] { json.choice("t", "y", {"y", "z"}); }, {"run.t: expected one of y, z"});
  expect_error([&] { json.choice("o", "y", {"y", "z"}); }, {"run.o"});
  EXPECT_EQ(json.texts("l"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(json.texts("t"), std::vector<std::string>{"x"});
  expect_error([&] { json.texts("m"); }, {"run.m"});
  expect_error([&] { json.texts("o"); }, {"run.o"});
}

TEST_F(JsonObjectTest, NamesUnknownKeysAndTheNearest) {
  JsonObject json = object(R"({"batch_sise": 1, "steps": 2})");
  json.integer("steps", 0, 0, 9);
  json.integer("batch_size", 0, 0, 9);
  json.integer("seed", 0, 0, 9);
  EXPECT_EQ(json.unknown_keys(), std::vector<std::string>{"batch_sise"});
  expect_error([&] { json.require_no_unknown_keys(); },
               {"run: unknown key 'batch_sise'; did you mean 'batch_size'?"});
  JsonObject far = object(R"({"entirely_else": 1})");
  far.integer("seed", 0, 0, 9);
  try {
    far.require_no_unknown_keys();
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "run: unknown key 'entirely_else'");
  }
  JsonObject none = object("{}");
  EXPECT_NO_THROW(none.require_no_unknown_keys());
}

TEST_F(JsonObjectTest, NeedsAnObject) {
  for (const char* text : {"[]", "1", "\"x\"", "null"})
    expect_error([&] { object(text); }, {"run: expected a JSON object", text});
}

TEST(NearestWord, HasTheLeastDistance) {
  EXPECT_EQ(nearest_word("n_heads", {"n_layer", "n_head", "head_dim"}), "n_head");
  EXPECT_EQ(nearest_word("dm", {"dim", "rank"}), "dim");
  EXPECT_EQ(nearest_word("zzzzzz", {"dim", "rank"}), "");
  EXPECT_EQ(nearest_word("x", {}), "");
}

}  // namespace
}  // namespace dcformer
