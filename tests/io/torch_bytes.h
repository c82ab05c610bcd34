#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dcformer/io/torch_file.h"

namespace dcformer::test {

/// A number's little-endian bytes.
template <typename T>
std::string le(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// Pieces of pickles: each is the opcodes that leave one value on the stack.
inline std::string pickled_text(const std::string& text) {
  return std::string("X") + le(static_cast<uint32_t>(text.size())) + text;
}
inline std::string pickled_int(int64_t value) { return std::string("\x8a\x08") + le(value); }
inline std::string pickled_global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string pickled_tuple(const std::vector<std::string>& items) {
  std::string bytes = "(";
  for (const std::string& item : items) bytes += item;
  return bytes + "t";
}
inline std::string pickled_ints(const std::vector<int64_t>& values) {
  std::vector<std::string> items;
  for (const int64_t value : values) items.push_back(pickled_int(value));
  return pickled_tuple(items);
}
inline std::string pickled_storage(const std::string& type, const std::string& key, int64_t n,
                                   const std::string& view = "") {
  std::vector<std::string> id = {pickled_text("storage"), pickled_global("torch", type),
                                 pickled_text(key), pickled_text("cpu"), pickled_int(n)};
  if (!view.empty()) id.push_back(view);
  return pickled_tuple(id) + "Q";
}
inline std::string pickled_tensor(const std::string& storage, int64_t offset,
                                  const std::vector<int64_t>& shape,
                                  const std::vector<int64_t>& strides) {
  const std::string hooks = pickled_global("collections", "OrderedDict") + ")R";
  return pickled_global("torch._utils", "_rebuild_tensor_v2") +
         pickled_tuple({storage, pickled_int(offset), pickled_ints(shape), pickled_ints(strides),
                        "\x89", hooks}) +
         "R";
}
inline std::string pickled_dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string bytes = "}(";
  for (const auto& [name, value] : entries) bytes += pickled_text(name) + value;
  return bytes + "u";
}
/// A whole pickle of one value.
inline std::string whole_pickle(const std::string& value) { return "\x80\x02" + value + "."; }

struct ZipMember {
  std::string name;
  std::string data;
  uint16_t method = 0;
  uint16_t flags = 0;
};

/// A zip archive as PyTorch writes it: data padded to a multiple of 64 bytes by a field of the
/// header. `zip64`: sizes and places stand in the 64-bit fields.
inline std::string zip_bytes(const std::vector<ZipMember>& members, bool zip64 = false) {
  std::string bytes;
  std::string directory;
  for (const ZipMember& m : members) {
    const auto begin = static_cast<uint32_t>(bytes.size());
    const auto size = static_cast<uint32_t>(m.data.size());
    const size_t padding = 64 - (bytes.size() + 30 + m.name.size() + 4) % 64;
    bytes += std::string("PK\x03\x04") + le<uint16_t>(0) + le(m.flags) + le(m.method) +
             le<uint64_t>(0) + le(size) + le(size) + le(static_cast<uint16_t>(m.name.size())) +
             le(static_cast<uint16_t>(padding + 4)) + m.name + "FB" +
             le(static_cast<uint16_t>(padding)) + std::string(padding, 'Z') + m.data;
    const std::string extra = zip64 ? le<uint16_t>(1) + le<uint16_t>(24) + le<uint64_t>(size) +
                                          le<uint64_t>(size) + le<uint64_t>(begin)
                                    : "";
    directory += std::string("PK\x01\x02") + le<uint32_t>(0) + le(m.flags) + le(m.method) +
                 le<uint64_t>(0) + le(zip64 ? UINT32_MAX : size) + le(zip64 ? UINT32_MAX : size) +
                 le(static_cast<uint16_t>(m.name.size())) +
                 le(static_cast<uint16_t>(extra.size())) + le<uint16_t>(0) + le<uint64_t>(0) +
                 le(zip64 ? UINT32_MAX : begin) + m.name + extra;
  }
  const uint64_t begin = bytes.size();
  const auto n = static_cast<uint16_t>(members.size());
  bytes += directory;
  const uint64_t end = bytes.size();
  if (zip64)
    bytes += std::string("PK\x06\x06") + le<uint64_t>(44) + le<uint32_t>(0) + le<uint64_t>(0) +
             le<uint64_t>(n) + le<uint64_t>(n) + le<uint64_t>(directory.size()) + le(begin) +
             "PK\x06\x07" + le<uint32_t>(0) + le(end) + le<uint32_t>(1);
  bytes += std::string("PK\x05\x06") + le<uint32_t>(0) + le(zip64 ? uint16_t{UINT16_MAX} : n) +
           le(zip64 ? uint16_t{UINT16_MAX} : n) +
           le(zip64 ? UINT32_MAX : static_cast<uint32_t>(directory.size())) +
           le(zip64 ? UINT32_MAX : static_cast<uint32_t>(begin)) + le<uint16_t>(0);
  return bytes;
}

/// The file that torch.save makes of a pickled value and storages.
inline std::string torch_zip(const std::string& value,
                             const std::vector<std::pair<std::string, std::string>>& storages) {
  std::vector<ZipMember> members = {{"m/data.pkl", whole_pickle(value)}, {"m/byteorder", "little"}};
  for (const auto& [key, data] : storages) members.push_back({"m/data/" + key, data});
  members.push_back({"m/version", "3\n"});
  return zip_bytes(members);
}

inline std::string legacy_header(const std::string& little_endian = "\x88") {
  return whole_pickle("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") +
         whole_pickle(pickled_int(1001)) +
         whole_pickle(pickled_dict({{"little_endian", little_endian}}));
}

/// The older file of a pickled value and storages, each as (key, elements and data).
inline std::string torch_legacy(const std::string& value,
                                const std::vector<std::pair<std::string, std::string>>& storages) {
  std::string keys = "](";
  std::string data;
  for (const auto& [key, bytes] : storages) {
    keys += pickled_text(key);
    data += bytes;
  }
  return legacy_header() + whole_pickle(value) + whole_pickle(keys + "e") + data;
}

/// In memory of exactly that size: a sanitizer sees a read beyond it.
inline std::unique_ptr<TensorSource> parse_torch(const std::string& bytes) {
  const std::shared_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return parse_torch_file({copy, copy.get()}, bytes.size(), "f");
}

}  // namespace dcformer::test
