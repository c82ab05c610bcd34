#include "dcformer/io/pickle.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/io/expect_error.h"
#include "tests/io/torch_bytes.h"

namespace dcformer {
namespace {

using test::expect_error;
using test::le;
using test::whole_pickle;
using Kind = Pickle::Kind;

// Of texts that live on: values point into them.
Pickle parse(const std::string& bytes) {
  return Pickle::parse({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, 0, "f");
}

void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) {
  expect_error([&] { parse(bytes); }, parts);
}

TEST(Pickle, ReadsPlainValues) {
  const std::string bytes =
      whole_pickle("(N\x88\x89K\xffM\x01\x02J\xfe\xff\xff\xff\x8a\x01\xfe\x8a" +
                   std::string(1, '\0') + "X" + le<uint32_t>(2) +
                   "abU\x01"
                   "c\x8c\x01"
                   "dG12345678t");
  const Pickle pickle = parse(bytes);
  const Pickle::Value& root = pickle.root();
  ASSERT_EQ(root.kind, Kind::tuple);
  ASSERT_EQ(root.items.size(), 12u);
  const auto item = [&](size_t i) -> const Pickle::Value& { return pickle[root.items[i]]; };
  EXPECT_EQ(item(0).kind, Kind::none);
  EXPECT_EQ(item(1).integer, 1);
  EXPECT_EQ(item(2).kind, Kind::boolean);
  EXPECT_EQ(item(3).integer, 255);
  EXPECT_EQ(item(4).integer, 513);
  EXPECT_EQ(item(5).integer, -2);
  EXPECT_EQ(item(6).integer, -2);
  EXPECT_EQ(item(7).integer, 0);
  EXPECT_EQ(item(8).text, "ab");
  EXPECT_EQ(item(9).text, "c");
  EXPECT_EQ(item(10).text, "d");
  EXPECT_EQ(item(11).kind, Kind::real);
  EXPECT_EQ(pickle.end(), bytes.size());
}

TEST(Pickle, ContainersAndTheMemo) {
  // A list of one text twice, by the memo; MEMOIZE counts on from what is remembered.
  const std::string bytes = "\x80\x04\x95" + le<uint64_t>(0) +
                            "}\x94\x8c\x01k\x94](h\x01h\x01"
                            "eK\x05"
                            "as.";
  const Pickle pickle = parse(bytes);
  const Pickle::Value* list = pickle.find(pickle.root(), "k");
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(list->items.size(), 3u);
  EXPECT_EQ(list->items[0], list->items[1]);
  EXPECT_EQ(pickle[list->items[0]].text, "k");
  EXPECT_EQ(pickle[list->items[2]].integer, 5);
  EXPECT_EQ(pickle.find(pickle.root(), "absent"), nullptr);
}

TEST(Pickle, NamesAreKeptAndNothingIsCalled) {
  const std::string ordered =
      whole_pickle(test::pickled_global("collections", "OrderedDict") + ")R" + "}b");
  EXPECT_EQ(parse(ordered).root().kind, Kind::dict);
  const std::string stack = whole_pickle(
      "\x8c\x05torch\x8c\x0a"
      "BoolStorag\x93");
  expect_refused(stack, {"'torch BoolStorag'"});
  const std::string type = whole_pickle(
      "\x8c\x05torch\x8c\x0b"
      "BoolStorage\x93");
  EXPECT_EQ(parse(type).root().global->dtype, DType::boolean);
  const std::string cuda = whole_pickle(test::pickled_global("torch.cuda", "HalfStorage"));
  EXPECT_EQ(parse(cuda).root().global->dtype, DType::f16);
  const std::string size = whole_pickle(test::pickled_global("torch", "Size") +
                                        test::pickled_tuple({test::pickled_ints({2, 3})}) + "R");
  EXPECT_EQ(parse(size).root().items.size(), 2u);
}

TEST(Pickle, RefusesAnyOtherName) {
  for (const auto& [module, name] :
       std::vector<std::pair<std::string, std::string>>{{"os", "system"},
                                                        {"builtins", "eval"},
                                                        {"torch", "load"},
                                                        {"torch._utils", "_rebuild_tensor_v9"},
                                                        {"torch.cuda", "Size"},
                                                        {"collections", "defaultdict"},
                                                        {"", ""}})
    expect_refused(whole_pickle(test::pickled_global(module, name) + ")R"),
                   {"f: byte 2: the name '" + module + " " + name + "'", "nothing was executed"});
  expect_refused(whole_pickle("c" + std::string(1000, 'x')),
                 {"f: byte 3: a name of more than 256"});
  expect_refused(whole_pickle("cabc"), {"f: byte"});
  // Types are no functions, and only functions are called.
  expect_refused(whole_pickle(test::pickled_global("torch", "FloatStorage") + ")R"),
                 {"'torch FloatStorage' is called"});
  expect_refused(whole_pickle("K\x01)R"), {"expected a call of a known name"});
  expect_refused(whole_pickle("K\x01K\x02\x93"), {"expected the texts of a name"});
}

TEST(Pickle, RefusesAnyOtherOpcode) {
  const std::string known = "(.NJKMGTUX]aet)}sucRbQqrhj";
  const std::vector<int> known_high = {0x80, 0x85, 0x86, 0x87, 0x88, 0x89,
                                       0x8a, 0x8c, 0x8d, 0x93, 0x94, 0x95};
  for (int opcode = 0; opcode < 256; ++opcode) {
    if (opcode < 128 && known.find(static_cast<char>(opcode)) != std::string::npos) continue;
    if (std::count(known_high.begin(), known_high.end(), opcode) > 0) continue;
    expect_refused(
        "\x80\x02" + std::string(1, static_cast<char>(opcode)) + "aaaaaaaa.",
        {"f: byte 2: opcode", fmt::format("(0x{:02x})", opcode), "nothing was executed"});
  }
  expect_refused("\x80\x02(ios\nsystem\n.", {"opcode INST (0x69)"});
  expect_refused("\x80\x02)\x81.", {"byte 3: opcode NEWOBJ (0x81)"});
}

TEST(Pickle, RefusesWhatDoesNotHold) {
  expect_refused("", {"f: byte 0"});
  expect_refused("\x80\x02N", {"f: byte 3"});
  expect_refused("\x80\x06N.", {"protocol 6"});
  expect_refused(std::string("\x80\x01N.", 4), {"protocol 1"});
  expect_refused("\x80\x02.", {"f: byte 2: 1 values are needed and 0 are there"});
  expect_refused("\x80\x02K\x01\x86.", {"byte 4: 2 values are needed and 1 are there"});
  expect_refused("\x80\x02t.", {"byte 2: a mark is needed"});
  // What lies below a mark is out of reach.
  expect_refused("\x80\x02K\x01(\x85.", {"1 values are needed and 0 are there"});
  expect_refused("\x80\x02K\x01(.", {"1 values are needed and 0 are there"});
  expect_refused("\x80\x02}(K\x01u.", {"a key without a value"});
  expect_refused("\x80\x02K\x01(K\x01K\x01u.", {"expected a dict to add to"});
  expect_refused(
      "\x80\x02K\x01K\x01"
      "a.",
      {"expected a list to append to"});
  expect_refused("\x80\x02h\x07.", {"nothing was remembered under 7"});
  expect_refused("\x80\x02q\x07.", {"nothing is there to remember"});
  expect_refused("\x80\x02K\x01Q.", {"expected a tuple as persistent id"});
  expect_refused("\x80\x02K\x01}b.", {"attributes for a dict alone"});
  // Lengths beyond the end.
  expect_refused("\x80\x02X" + le<uint32_t>(UINT32_MAX) + "abc.",
                 {"4294967295 bytes are expected"});
  expect_refused("\x80\x02\x8d" + le<uint64_t>(UINT64_MAX) + "abc.",
                 {"18446744073709551615 bytes are expected"});
  expect_refused(
      "\x80\x02\x8a\xff"
      "abc.",
      {"255 bytes are expected"});
}

TEST(Pickle, EveryPrefixIsRefused) {
  const std::string bytes = whole_pickle(
      test::pickled_dict({{"t", test::pickled_tensor(test::pickled_storage("FloatStorage", "0", 6),
                                                     0, {2, 3}, {3, 1})}}));
  EXPECT_NO_THROW(parse(bytes));
  for (size_t n = 0; n < bytes.size(); ++n) expect_refused(bytes.substr(0, n), {"f: byte"});
}

TEST(Pickle, DepthTakesNoStack) {
  const std::string deep = whole_pickle("N" + std::string(1'000'000, '\x85'));
  EXPECT_EQ(parse(deep).root().kind, Kind::tuple);
  // A list that holds itself.
  EXPECT_EQ(parse(whole_pickle("]q" + std::string(1, '\0') + "h" + std::string(1, '\0') + "a"))
                .root()
                .items.size(),
            1u);
}

// A large tuple that is called again and again must not be copied each time.
TEST(Pickle, CallsTakeNoMoreThanTheirBytes) {
  std::string bytes =
      "\x80\x02" + test::pickled_global("torch._utils", "_rebuild_tensor_v2") + "q\x01(";
  for (int i = 0; i < 200'000; ++i) bytes += "N";
  bytes += "tq\x02";
  for (int i = 0; i < 50'000; ++i) bytes += "h\x01h\x02R";
  bytes += ".";
  const Pickle pickle = parse(bytes);
  EXPECT_EQ(pickle.root().items.size(), 1u);
}

}  // namespace
}  // namespace dcformer
