#include "dcformer/io/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <unordered_set>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/mapped_file.h"
#include "dcformer/io/json_file.h"
#include "dcformer/io/stored_elements.h"

namespace dcformer {
namespace {

constexpr size_t kMaxHeader = size_t{100} << 20;

struct NamedType {
  const char* name;
  DType dtype;
};
constexpr NamedType kTypes[] = {{"F64", DType::f64},     {"F32", DType::f32}, {"F16", DType::f16},
                                {"BF16", DType::bf16},   {"I64", DType::i64}, {"I32", DType::i32},
                                {"I16", DType::i16},     {"I8", DType::i8},   {"U8", DType::u8},
                                {"BOOL", DType::boolean}};

DType parse_dtype(const std::string& text, const std::string& where) {
  for (const NamedType& type : kTypes)
    if (text == type.name) return type.dtype;
  fail("{}: data type '{}' is not known", where, text);
}

std::string dtype_text(DType dtype) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const NamedType& t) { return t.dtype == dtype; });
  return found->name;
}

uint64_t unsigned_number(const nlohmann::json& json, const std::string& where) {
  require(json.is_number_unsigned() && json.get<uint64_t>() <= uint64_t{1} << 62,
          "{}: expected a whole number that is not negative, got {}", where, json.dump());
  return json.get<uint64_t>();
}

const nlohmann::json& field(const nlohmann::json& json, const char* key, const std::string& where) {
  require(json.is_object() && json.contains(key), "{}: expected an object with '{}'", where, key);
  return json.at(key);
}

Shape parse_shape(const nlohmann::json& json, const std::string& where) {
  require(json.is_array() && json.size() <= Shape::kMaxRank,
          "{}: expected a shape of at most {} dimensions", where, Shape::kMaxRank);
  std::vector<int64_t> dims;
  for (const nlohmann::json& dim : json)
    dims.push_back(static_cast<int64_t>(unsigned_number(dim, where)));
  try {
    return Shape(dims);
  } catch (const Error& e) {
    fail("{}: {}", where, e.what());
  }
}

SafetensorsFile::Entry parse_entry(const std::string& name, const nlohmann::json& json,
                                   size_t data_size, const std::string& file) {
  const std::string where = fmt::format("{}: tensor '{}'", file, name);
  const nlohmann::json& type = field(json, "dtype", where);
  require(type.is_string(), "{}: expected a text as dtype", where);
  const nlohmann::json& offsets = field(json, "data_offsets", where);
  require(offsets.is_array() && offsets.size() == 2, "{}: expected two data_offsets", where);
  SafetensorsFile::Entry entry{name, parse_dtype(type.get<std::string>(), where),
                               parse_shape(field(json, "shape", where), where),
                               unsigned_number(offsets[0], where),
                               unsigned_number(offsets[1], where)};
  require(entry.begin <= entry.end && entry.end <= data_size,
          "{}: data_offsets [{},{}] lie outside the file's {} bytes of data", where, entry.begin,
          entry.end, data_size);
  const auto numel = static_cast<uint64_t>(entry.shape.numel());
  require((entry.end - entry.begin) % size_of(entry.dtype) == 0 &&
              (entry.end - entry.begin) / size_of(entry.dtype) == numel,
          "{}: {} bytes do not hold shape {} of {}", where, entry.end - entry.begin,
          to_string(entry.shape), name_of(entry.dtype));
  return entry;
}

std::map<std::string, std::string> parse_metadata(const nlohmann::json& json,
                                                  const std::string& where) {
  require(json.is_object(), "{}: expected __metadata__ to be an object", where);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : json.items()) {
    require(value.is_string(), "{}: expected __metadata__ '{}' to be a text", where, key);
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// The length of the header and the header, which ends at a multiple of 8 bytes.
std::string header_bytes(const std::string& path, const std::vector<PlannedTensor>& plan,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::unordered_set<std::string_view> names = {"__metadata__"};
  size_t begin = 0;
  for (const PlannedTensor& tensor : plan) {
    require(names.insert(tensor.name).second, "{}: tensor '{}' is given twice", path, tensor.name);
    // ordered_json looks through all keys for one that is there already.
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        tensor.name, nlohmann::ordered_json{{"dtype", dtype_text(tensor.dtype)},
                                            {"shape", tensor.shape.dims()},
                                            {"data_offsets", {begin, begin + tensor.bytes()}}});
    begin += tensor.bytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + text;
}

/// The file that is being filled.
class TensorWriter {
 public:
  TensorWriter(const std::string& path, const std::string& beside)
      : path_(path), file_(beside, std::ios::binary | std::ios::trunc) {
    require_good();
  }

  void write(const void* data, size_t size) {
    errno = 0;
    file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    require_good();
  }

  // Returns how many values became infinite.
  int64_t write(const PlannedTensor& plan, const Tensor& tensor) {
    require(tensor.defined() && tensor.shape() == plan.shape,
            "{}: tensor '{}' has shape {}, expected {}", path_, plan.name,
            to_string(tensor.shape()), to_string(plan.shape));
    if (tensor.dtype() != plan.dtype) return write_rounded(plan, tensor);
    write(tensor.raw(), tensor.bytes());
    return 0;
  }

  void close() {
    errno = 0;
    file_.close();
    require_good();
  }

 private:
  static constexpr int64_t kPiece = 1 << 16;

  static bool is_float(DType dtype) {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
  }

  int64_t write_rounded(const PlannedTensor& plan, const Tensor& tensor) {
    require(is_float(tensor.dtype()) && is_float(plan.dtype),
            "{}: tensor '{}' is {}, expected {} or a type that rounds to it", path_, plan.name,
            name_of(tensor.dtype()), name_of(plan.dtype));
    std::vector<float> values(kPiece);
    std::vector<std::byte> stored(kPiece * size_of(plan.dtype));
    const auto* data = static_cast<const std::byte*>(tensor.raw());
    int64_t n_overflow = 0;
    for (int64_t i = 0; i < tensor.numel(); i += kPiece) {
      const std::span piece(values.data(), std::min(kPiece, tensor.numel() - i));
      read_elements(tensor.dtype(), data + static_cast<size_t>(i) * size_of(tensor.dtype()), 1,
                    piece);
      n_overflow += store_elements(piece, plan.dtype, stored.data());
      write(stored.data(), piece.size() * size_of(plan.dtype));
    }
    return n_overflow;
  }

  void require_good() {
    require(file_.good(), "{}: cannot write: {}", path_, std::strerror(errno == 0 ? EIO : errno));
  }

  const std::string& path_;
  std::ofstream file_;
};

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  const MappedFile file(path);
  return parse(file.owner(), file.bytes().size(), path);
}

SafetensorsFile SafetensorsFile::parse(std::shared_ptr<const std::byte> owner, size_t size,
                                       const std::string& where) {
  require(size >= 8, "{}: {} bytes, expected a safetensors file of at least 8", where, size);
  uint64_t header_size = 0;
  std::memcpy(&header_size, owner.get(), 8);
  require(
      header_size <= std::min(size - 8, kMaxHeader),
      "{}: its header claims {} bytes, expected at most {}; not a safetensors file, or cut short",
      where, header_size, std::min(size - 8, kMaxHeader));
  const nlohmann::json header =
      parse_json({reinterpret_cast<const char*>(owner.get()) + 8, header_size},
                 fmt::format("{}: header", where));
  require(header.is_object(), "{}: header: expected a JSON object", where);
  SafetensorsFile file;
  file.where_ = where;
  const size_t data_size = size - 8 - header_size;
  file.data_ = {owner, owner.get() + 8 + header_size};
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      file.metadata_ = parse_metadata(value, where);
    } else {
      file.entries_.push_back(parse_entry(name, value, data_size, where));
    }
  }
  std::stable_sort(file.entries_.begin(), file.entries_.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (size_t i = 1; i < file.entries_.size(); ++i)
    require(file.entries_[i].begin >= file.entries_[i - 1].end, "{}: tensors '{}' and '{}' overlap",
            where, file.entries_[i - 1].name, file.entries_[i].name);
  return file;
}

const SafetensorsFile::Entry* SafetensorsFile::find(const std::string& name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

Tensor SafetensorsFile::tensor(const Entry& entry) const {
  auto* begin = const_cast<std::byte*>(data_.get()) + entry.begin;
  if (reinterpret_cast<uintptr_t>(begin) % size_of(entry.dtype) == 0)
    return Tensor::adopt({std::const_pointer_cast<std::byte>(data_), begin}, entry.dtype,
                         entry.shape);
  const size_t bytes = entry.end - entry.begin;
  const std::shared_ptr<std::byte[]> copy(new std::byte[bytes]);
  std::memcpy(copy.get(), begin, bytes);
  return Tensor::adopt({copy, copy.get()}, entry.dtype, entry.shape);
}

Tensor SafetensorsFile::tensor(const std::string& name) const {
  const Entry* entry = find(name);
  require(entry != nullptr, "{}: no tensor '{}'", where_, name);
  return tensor(*entry);
}

TensorReference parse_tensor_reference(const std::string& text) {
  const std::string ending = ".safetensors:";
  const size_t found = text.rfind(ending);
  if (found == std::string::npos) return {text, std::nullopt};
  const size_t colon = found + ending.size() - 1;
  return {text.substr(0, colon), text.substr(colon + 1)};
}

Tensor read_tensor(const TensorReference& reference, const std::string& preferred) {
  const SafetensorsFile file = SafetensorsFile::open(reference.path);
  if (reference.name) return file.tensor(*reference.name);
  if (file.find(preferred) != nullptr) return file.tensor(preferred);
  if (file.entries().size() == 1) return file.tensor(file.entries().front());
  std::vector<std::string> names;
  for (const auto& entry : file.entries())
    if (names.size() < 20) names.push_back(entry.name);
  fail("{}: holds {} tensors and none is '{}'; name one as {}:NAME ({})", reference.path,
       file.entries().size(), preferred, reference.path, fmt::join(names, ", "));
}

IdRows id_rows(const Tensor& tensor, const std::string& where) {
  require(tensor.dtype() == DType::i32 || tensor.dtype() == DType::i64,
          "{}: ids are {}, expected i32 or i64", where, name_of(tensor.dtype()));
  require(tensor.shape().rank() >= 1 && tensor.shape()[-1] >= 1,
          "{}: ids have shape {}, expected rows of ids", where, to_string(tensor.shape()));
  IdRows rows{tensor.numel() / tensor.shape()[-1], tensor.shape()[-1], {}};
  rows.ids.reserve(static_cast<size_t>(tensor.numel()));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const int64_t id =
        tensor.dtype() == DType::i32 ? tensor.data<int32_t>()[i] : tensor.data<int64_t>()[i];
    require(id >= INT32_MIN && id <= INT32_MAX, "{}: id {} in row {} does not fit 32 bits", where,
            id, i / rows.length);
    rows.ids.push_back(static_cast<int32_t>(id));
  }
  return rows;
}

WriteSummary write_safetensors(const std::string& path, const std::vector<PlannedTensor>& plan,
                               const TensorGiver& give,
                               const std::map<std::string, std::string>& metadata) {
  const std::string header = header_bytes(path, plan, metadata);
  size_t size = header.size();
  for (const PlannedTensor& tensor : plan) size += tensor.bytes();
  WriteSummary summary;
  replace_file(path, [&](const std::string& beside) {
    require_free_space(path, size);
    TensorWriter writer(path, beside);
    writer.write(header.data(), header.size());
    for (size_t i = 0; i < plan.size(); ++i) {
      const int64_t n_overflow = writer.write(plan[i], give(i));
      if (n_overflow > 0 && summary.n_overflow == 0) summary.overflow_in = plan[i].name;
      summary.n_overflow += n_overflow;
    }
    writer.close();
  });
  return summary;
}

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<PlannedTensor> plan;
  for (const auto& [name, tensor] : tensors) plan.push_back({name, tensor.dtype(), tensor.shape()});
  write_safetensors(
      path, plan, [&](size_t i) { return tensors[i].second; }, metadata);
}

}  // namespace dcformer
