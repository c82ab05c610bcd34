#include "dcformer/io/zarr_metadata.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "dcformer/base/check.h"
#include "dcformer/io/json_file.h"

namespace dcformer {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;

struct NamedType {
  const char* name;
  DType dtype;
};
// The names of NumPy, and of ml_dtypes for bfloat16. A single byte has no order: any sign of one.
constexpr NamedType kTypes[] = {
    {"<f8", DType::f64},     {"<f4", DType::f32}, {"<f2", DType::f16}, {"bfloat16", DType::bf16},
    {"<i8", DType::i64},     {"<i4", DType::i32}, {"<i2", DType::i16}, {"|i1", DType::i8},
    {"<i1", DType::i8},      {"|u1", DType::u8},  {"<u1", DType::u8},  {"|b1", DType::boolean},
    {"bool", DType::boolean}};

/// The keys of one `.zarray`, with errors that name them.
class Keys {
 public:
  Keys(const nlohmann::json& json, const std::string& where) : json_(json), where_(where) {
    require(json.is_object(), "{}: expected a JSON object", where);
  }

  // Null when absent.
  const nlohmann::json& at(const char* key) const {
    static const nlohmann::json null;
    const auto found = json_.find(key);
    return found == json_.end() ? null : *found;
  }
  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    fail("{}: {}: expected {}, got {}", where_, key, expected, at(key).dump().substr(0, 80));
  }
  void expect(bool condition, const char* key, const char* expected) const {
    if (!condition) refuse(key, expected);
  }

  Shape extents(const char* key, int64_t least) const {
    const nlohmann::json& list = at(key);
    expect(list.is_array() && list.size() <= Shape::kMaxRank, key, "a list of at most 8 numbers");
    std::vector<int64_t> dims;
    for (const nlohmann::json& dim : list) {
      const bool valid = dim.is_number_unsigned() && dim.get<uint64_t>() <= kMostElements &&
                         dim.get<int64_t>() >= least;
      if (!valid) refuse(key, fmt::format("whole numbers of at least {}", least));
      dims.push_back(dim.get<int64_t>());
    }
    int64_t numel = 1;
    for (const int64_t dim : dims)
      if (dim != 0 && __builtin_mul_overflow(numel, dim, &numel)) numel = kMostElements + 1;
    expect(numel <= kMostElements, key, "at most 2^40 elements");
    return Shape(dims);
  }

  DType type() const {
    const nlohmann::json& name = at("dtype");
    for (const NamedType& type : kTypes)
      if (name == type.name) return type.dtype;
    refuse("dtype", "a type like <f4 or bfloat16");
  }

  bool is_zstd() const {
    const nlohmann::json& compressor = at("compressor");
    if (compressor.is_null()) return false;
    expect(compressor.is_object() && compressor.contains("id") && compressor["id"] == "zstd",
           "compressor", "zstd or null");
    return true;
  }

  float fill() const {
    const nlohmann::json& value = at("fill_value");
    if (value.is_null()) return 0;
    if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
    if (value.is_number()) return value.get<float>();
    if (value == "NaN") return std::numeric_limits<float>::quiet_NaN();
    if (value == "Infinity") return std::numeric_limits<float>::infinity();
    if (value == "-Infinity") return -std::numeric_limits<float>::infinity();
    refuse("fill_value", "a number or null");
  }

  char separator() const {
    const nlohmann::json& value = at("dimension_separator");
    if (value.is_null() || value == ".") return '.';
    expect(value == "/", "dimension_separator", "\".\" or \"/\"");
    return '/';
  }

 private:
  const nlohmann::json& json_;
  const std::string& where_;
};

}  // namespace

ZarrMetadata parse_zarr_metadata(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  const Keys keys(json, where);
  keys.expect(keys.at("zarr_format") == 2, "zarr_format", "2");
  ZarrMetadata metadata;
  metadata.shape = keys.extents("shape", 0);
  metadata.chunk = keys.extents("chunks", 1);
  require(metadata.chunk.rank() == metadata.shape.rank(), "{}: chunks {} for shape {}", where,
          to_string(metadata.chunk), to_string(metadata.shape));
  metadata.dtype = keys.type();
  metadata.zstd = keys.is_zstd();
  metadata.fill = keys.fill();
  metadata.separator = keys.separator();
  const nlohmann::json& filters = keys.at("filters");
  keys.expect(filters.is_null() || (filters.is_array() && filters.empty()), "filters", "null");
  const bool rows =
      keys.at("order") == "C" || (keys.at("order") == "F" && metadata.shape.rank() < 2);
  keys.expect(rows, "order", "\"C\"");
  return metadata;
}

std::string chunk_name(const ZarrMetadata& metadata, const std::vector<int64_t>& place) {
  if (place.empty()) return "0";
  return fmt::format("{}", fmt::join(place, std::string(1, metadata.separator)));
}

}  // namespace dcformer
