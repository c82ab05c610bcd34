#include "dcformer/io/pickle_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace dcformer {
namespace {

constexpr AllowedGlobal kAllowed[] = {
    {PickleGlobal::rebuild_tensor, "torch._utils", "_rebuild_tensor"},
    {PickleGlobal::rebuild_tensor_v2, "torch._utils", "_rebuild_tensor_v2"},
    {PickleGlobal::rebuild_tensor_v3, "torch._utils", "_rebuild_tensor_v3"},
    {PickleGlobal::rebuild_parameter, "torch._utils", "_rebuild_parameter"},
    {PickleGlobal::ordered_dict, "collections", "OrderedDict"},
    {PickleGlobal::size, "torch", "Size"},
    {PickleGlobal::untyped_storage, "torch.storage", "UntypedStorage"},
    {PickleGlobal::typed_storage, "torch", "DoubleStorage", DType::f64},
    {PickleGlobal::typed_storage, "torch", "FloatStorage", DType::f32},
    {PickleGlobal::typed_storage, "torch", "HalfStorage", DType::f16},
    {PickleGlobal::typed_storage, "torch", "BFloat16Storage", DType::bf16},
    {PickleGlobal::typed_storage, "torch", "LongStorage", DType::i64},
    {PickleGlobal::typed_storage, "torch", "IntStorage", DType::i32},
    {PickleGlobal::typed_storage, "torch", "ShortStorage", DType::i16},
    {PickleGlobal::typed_storage, "torch", "CharStorage", DType::i8},
    {PickleGlobal::typed_storage, "torch", "ByteStorage", DType::u8},
    {PickleGlobal::typed_storage, "torch", "BoolStorage", DType::boolean},
    {PickleGlobal::element_type, "torch", "float64", DType::f64},
    {PickleGlobal::element_type, "torch", "float32", DType::f32},
    {PickleGlobal::element_type, "torch", "float16", DType::f16},
    {PickleGlobal::element_type, "torch", "bfloat16", DType::bf16},
    {PickleGlobal::element_type, "torch", "int64", DType::i64},
    {PickleGlobal::element_type, "torch", "int32", DType::i32},
    {PickleGlobal::element_type, "torch", "int16", DType::i16},
    {PickleGlobal::element_type, "torch", "int8", DType::i8},
    {PickleGlobal::element_type, "torch", "uint8", DType::u8},
    {PickleGlobal::element_type, "torch", "bool", DType::boolean},
};

struct NamedOpcode {
  uint8_t opcode;
  const char* name;
};
// Those that the reader refuses; the others never need a name.
constexpr NamedOpcode kRefused[] = {
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'F', "FLOAT"},
    {'I', "INT"},
    {'L', "LONG"},
    {'P', "PERSID"},
    {'S', "STRING"},
    {'V', "UNICODE"},
    {'B', "BINBYTES"},
    {'C', "SHORT_BINBYTES"},
    {0x8e, "BINBYTES8"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
    {'d', "DICT"},
    {'l', "LIST"},
    {'g', "GET"},
    {'p', "PUT"},
    {'i', "INST"},
    {'o', "OBJ"},
    {0x81, "NEWOBJ"},
    {0x92, "NEWOBJ_EX"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x8f, "EMPTY_SET"},
    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},
};

}  // namespace

const AllowedGlobal* find_allowed_global(std::string_view module, std::string_view name) {
  // The types of storages on a GPU have a module of their own.
  if (module == "torch.cuda" && name.ends_with("Storage")) module = "torch";
  const auto* found = std::find_if(std::begin(kAllowed), std::end(kAllowed), [&](const auto& g) {
    return g.module == module && g.name == name;
  });
  return found == std::end(kAllowed) ? nullptr : found;
}

std::string opcode_name(uint8_t opcode) {
  const auto* found = std::find_if(std::begin(kRefused), std::end(kRefused),
                                   [&](const NamedOpcode& o) { return o.opcode == opcode; });
  return fmt::format("{} (0x{:02x})", found == std::end(kRefused) ? "unknown" : found->name,
                     opcode);
}

}  // namespace dcformer
