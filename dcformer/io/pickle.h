#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dcformer/io/pickle_names.h"

namespace dcformer {

/// A pickle of tensors, decoded: a graph of plain values. (The format: Python's pickletools.py,
/// protocols 2 to 5.) Nothing is executed: the few opcodes that such files consist of build values,
/// calls of the few names that they mention are kept as what was called with what.
class Pickle {
 public:
  using Id = uint32_t;
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    large_integer,  // beyond 64 bits; `text` has its little-endian bytes
    real,           // the value is not kept
    text,
    tuple,
    list,
    dict,     // keys and values in turn, OrderedDict as well
    global,   // `global` says which
    storage,  // items: the tuple that is its persistent id
    tensor,   // `global` says of which function, items: the tuple of its arguments
  };
  struct Value {
    Kind kind = Kind::none;
    int64_t integer = 0;
    /// Lies in the pickle's own bytes.
    std::string_view text;
    std::vector<Id> items;
    const AllowedGlobal* global = nullptr;
  };

  /// Decodes the pickle that begins at byte `begin`. Throws Error, naming `where`, the byte and the
  /// opcode or name, for anything else than a whole pickle of the kind above. Time and memory are
  /// bounded by the length of the pickle.
  static Pickle parse(std::span<const std::byte> bytes, size_t begin, const std::string& where);

  const Value& root() const { return values_[root_]; }
  const Value& operator[](Id id) const { return values_[id]; }
  /// All values, in the order in which the pickle made them.
  const std::vector<Value>& values() const { return values_; }
  /// The byte behind the pickle.
  size_t end() const { return end_; }

  /// The value of a key of a dict, null when there is none; of two the later one, as in Python.
  const Value* find(const Value& dict, std::string_view key) const;

 private:
  friend class PickleDecoder;
  std::vector<Value> values_;
  Id root_ = 0;
  size_t end_ = 0;
};

}  // namespace dcformer
