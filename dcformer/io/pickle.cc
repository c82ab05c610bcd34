#include "dcformer/io/pickle.h"

#include <unordered_map>

#include "dcformer/base/check.h"
#include "dcformer/io/byte_reader.h"

namespace dcformer {
namespace {

// Of a few dozen for each tensor; a value takes some 80 bytes.
constexpr size_t kMostValues = size_t{1} << 24;
constexpr size_t kLongestName = 256;

enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kNone = 'N',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kBinFloat = 'G',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyTuple = ')',
  kTuple = 't',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kGlobal = 'c',
  kReduce = 'R',
  kBuild = 'b',
  kBinPersId = 'Q',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

}  // namespace

/// The pickle machine: a stack of values, marks in it, and a memo.
class PickleDecoder {
 public:
  PickleDecoder(std::span<const std::byte> bytes, size_t begin, const std::string& where)
      : reader_(bytes, where, begin) {}

  Pickle decode() {
    for (;;) {
      at_ = reader_.at();
      const auto opcode = reader_.number<uint8_t>();
      if (opcode == kStop) break;
      const bool known =
          run_scalar(opcode) || run_container(opcode) || run_memo(opcode) || run_call(opcode);
      if (!known)
        refuse(fmt::format("opcode {} is none of those of tensor files; nothing was executed",
                           opcode_name(opcode)));
    }
    pickle_.root_ = pop();
    pickle_.end_ = reader_.at();
    return std::move(pickle_);
  }

 private:
  using Id = Pickle::Id;
  using Kind = Pickle::Kind;
  using Value = Pickle::Value;

  // As `require`, with the file and the byte of the opcode in front.
  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition) [[unlikely]]
      refuse(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void refuse(const std::string& text) const {
    fail("{}: byte {}: {}", reader_.where(), at_, text);
  }

  void push(Value value) {
    check(pickle_.values_.size() < kMostValues, "more than {} values", kMostValues);
    stack_.push_back(static_cast<Id>(pickle_.values_.size()));
    pickle_.values_.push_back(std::move(value));
  }
  void push_kind(Kind kind) {
    Value value;
    value.kind = kind;
    push(std::move(value));
  }
  void push_integer(int64_t integer, Kind kind = Kind::integer) {
    Value value;
    value.kind = kind;
    value.integer = integer;
    push(std::move(value));
  }
  void push_text(std::string_view text, Kind kind = Kind::text) {
    Value value;
    value.kind = kind;
    value.text = text;
    push(std::move(value));
  }
  void push_items(Kind kind, std::vector<Id> items, const AllowedGlobal* global = nullptr) {
    Value value;
    value.kind = kind;
    value.items = std::move(items);
    value.global = global;
    push(std::move(value));
  }

  // The values on the stack above the last mark.
  size_t depth() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  std::vector<Id> pop_items(size_t n) {
    check(depth() >= n, "{} values are needed and {} are there", n, depth());
    std::vector<Id> items(stack_.end() - static_cast<ptrdiff_t>(n), stack_.end());
    stack_.resize(stack_.size() - n);
    return items;
  }
  Id pop() { return pop_items(1).front(); }
  std::vector<Id> pop_to_mark() {
    check(!marks_.empty(), "a mark is needed and none is there");
    std::vector<Id> items = pop_items(depth());
    marks_.pop_back();
    return items;
  }
  // The value on top, of a kind.
  Value& top(Kind kind, const char* expected) {
    check(depth() >= 1, "a value is needed and none is there");
    Value& value = pickle_.values_[stack_.back()];
    check(value.kind == kind, "expected {}", expected);
    return value;
  }

  bool run_scalar(uint8_t opcode) {
    switch (opcode) {
      case kNone:
        return push_kind(Kind::none), true;
      case kNewTrue:
        return push_integer(1, Kind::boolean), true;
      case kNewFalse:
        return push_integer(0, Kind::boolean), true;
      case kBinInt:
        return push_integer(reader_.number<int32_t>()), true;
      case kBinInt1:
        return push_integer(reader_.number<uint8_t>()), true;
      case kBinInt2:
        return push_integer(reader_.number<uint16_t>()), true;
      case kLong1:
        return push_long(reader_.text(reader_.number<uint8_t>())), true;
      case kBinFloat:
        return reader_.bytes(8), push_kind(Kind::real), true;
      case kShortBinString:
      case kShortBinUnicode:
        return push_text(reader_.text(reader_.number<uint8_t>())), true;
      case kBinString:
      case kBinUnicode:
        return push_text(reader_.text(reader_.number<uint32_t>())), true;
      case kBinUnicode8:
        return push_text(reader_.text(reader_.number<uint64_t>())), true;
      default:
        return false;
    }
  }

  // Little-endian, two's complement, of any length.
  void push_long(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t)) return push_text(bytes, Kind::large_integer);
    const bool negative = !bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80) != 0;
    uint64_t value = negative ? UINT64_MAX : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    push_integer(static_cast<int64_t>(value));
  }

  bool run_container(uint8_t opcode) {
    switch (opcode) {
      case kMark:
        check(marks_.size() < kMostValues, "more than {} marks", kMostValues);
        return marks_.push_back(stack_.size()), true;
      case kEmptyTuple:
        return push_kind(Kind::tuple), true;
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return push_items(Kind::tuple, pop_items(size_t{opcode} - kTuple1 + 1)), true;
      case kTuple:
        return push_items(Kind::tuple, pop_to_mark()), true;
      case kEmptyList:
        return push_kind(Kind::list), true;
      case kAppend:
        return append(Kind::list, pop_items(1)), true;
      case kAppends:
        return append(Kind::list, pop_to_mark()), true;
      case kEmptyDict:
        return push_kind(Kind::dict), true;
      case kSetItem:
        return append(Kind::dict, pop_items(2)), true;
      case kSetItems:
        return append(Kind::dict, pop_to_mark()), true;
      default:
        return false;
    }
  }

  void append(Kind kind, const std::vector<Id>& items) {
    Value& value = top(kind, kind == Kind::list ? "a list to append to" : "a dict to add to");
    check(kind == Kind::list || items.size() % 2 == 0, "a key without a value");
    value.items.insert(value.items.end(), items.begin(), items.end());
  }

  bool run_memo(uint8_t opcode) {
    switch (opcode) {
      case kBinPut:
        return put(reader_.number<uint8_t>()), true;
      case kLongBinPut:
        return put(reader_.number<uint32_t>()), true;
      case kMemoize:
        return put(memo_.size()), true;
      case kBinGet:
        return get(reader_.number<uint8_t>()), true;
      case kLongBinGet:
        return get(reader_.number<uint32_t>()), true;
      default:
        return false;
    }
  }
  void put(uint64_t place) {
    check(depth() >= 1, "nothing is there to remember");
    memo_[place] = stack_.back();
    check(memo_.size() <= kMostValues, "more than {} values are remembered", kMostValues);
  }
  void get(uint64_t place) {
    const auto found = memo_.find(place);
    check(found != memo_.end(), "nothing was remembered under {}", place);
    // As bounded as values themselves.
    check(stack_.size() < kMostValues, "more than {} values", kMostValues);
    stack_.push_back(found->second);
  }

  bool run_call(uint8_t opcode) {
    switch (opcode) {
      case kProto: {
        const auto protocol = reader_.number<uint8_t>();
        check(protocol >= 2 && protocol <= 5, "pickle protocol {}, expected 2 to 5", protocol);
        return true;
      }
      case kFrame:
        // The frames' lengths serve reading in pieces.
        return reader_.bytes(8), true;
      case kGlobal: {
        const std::string_view module = line();
        return push_global(module, line()), true;
      }
      case kStackGlobal: {
        const std::vector<Id> names = pop_items(2);
        for (const Id name : names)
          check(pickle_[name].kind == Kind::text, "expected the texts of a name");
        return push_global(pickle_[names[0]].text, pickle_[names[1]].text), true;
      }
      case kBinPersId:
        return persistent(pop()), true;
      case kReduce:
        return reduce(pop_items(2)), true;
      case kBuild:
        // Attributes of an OrderedDict: versions of the modules, of no use here.
        pop();
        return top(Kind::dict, "attributes for a dict alone"), true;
      default:
        return false;
    }
  }

  std::string_view line() {
    const size_t begin = reader_.at();
    for (size_t n = 0; n <= kLongestName; ++n)
      if (reader_.number<char>() == '\n') return {reader_.text(0).data() - n - 1, n};
    fail("{}: byte {}: a name of more than {} bytes", reader_.where(), begin, kLongestName);
  }

  void push_global(std::string_view module, std::string_view name) {
    const AllowedGlobal* global = find_allowed_global(module, name);
    check(global != nullptr,
          "the name '{} {}' is none of those of tensor files; nothing was executed",
          module.substr(0, kLongestName), name.substr(0, kLongestName));
    push_items(Kind::global, {}, global);
  }

  void persistent(Id id) {
    check(pickle_[id].kind == Kind::tuple, "expected a tuple as persistent id");
    push_items(Kind::storage, {id});
  }

  void reduce(const std::vector<Id>& call) {
    const Value& function = pickle_[call[0]];
    const Value& arguments = pickle_[call[1]];
    check(function.kind == Kind::global && arguments.kind == Kind::tuple,
          "expected a call of a known name with a tuple");
    const AllowedGlobal* global = function.global;
    switch (global->meaning) {
      case PickleGlobal::ordered_dict:
        check(arguments.items.empty(), "expected OrderedDict()");
        return push_kind(Kind::dict);
      case PickleGlobal::size:
        check(arguments.items.size() == 1 && pickle_[arguments.items[0]].kind == Kind::tuple,
              "expected torch.Size of a tuple");
        return stack_.push_back(arguments.items[0]);
      case PickleGlobal::rebuild_parameter:
        check(!arguments.items.empty() && pickle_[arguments.items[0]].kind == Kind::tensor,
              "expected _rebuild_parameter of a tensor");
        return stack_.push_back(arguments.items[0]);
      case PickleGlobal::rebuild_tensor:
      case PickleGlobal::rebuild_tensor_v2:
      case PickleGlobal::rebuild_tensor_v3:
        return push_items(Kind::tensor, {call[1]}, global);
      case PickleGlobal::typed_storage:
      case PickleGlobal::untyped_storage:
      case PickleGlobal::element_type:
        break;
    }
    refuse(fmt::format("'{} {}' is called, which is no function of tensor files", global->module,
                       global->name));
  }

  ByteReader reader_;
  size_t at_ = 0;
  Pickle pickle_;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Id> memo_;
};

Pickle Pickle::parse(std::span<const std::byte> bytes, size_t begin, const std::string& where) {
  return PickleDecoder(bytes, begin, where).decode();
}

const Pickle::Value* Pickle::find(const Value& dict, std::string_view key) const {
  const Value* found = nullptr;
  for (size_t i = 0; dict.kind == Kind::dict && i + 1 < dict.items.size(); i += 2) {
    const Value& name = values_[dict.items[i]];
    if (name.kind == Kind::text && name.text == key) found = &values_[dict.items[i + 1]];
  }
  return found;
}

}  // namespace dcformer
