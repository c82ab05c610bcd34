#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dcformer/tensor/tensor.h"

namespace dcformer {

/// A safetensors file: 8 bytes of little-endian header length, a JSON header that gives each
/// tensor's type, shape and byte range, then the data (the format of the safetensors library,
/// version 0.4).
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    size_t begin;  // bytes from the start of the data
    size_t end;
  };

  /// Maps and checks a file. Throws Error, naming the file and the tensor, for anything that does
  /// not hold: lengths and ranges beyond the file, overlaps, shapes that disagree with ranges,
  /// unknown types, names that repeat.
  static SafetensorsFile open(const std::string& path);
  /// The same for bytes in memory, kept alive by `owner`; `where` names them in messages.
  static SafetensorsFile parse(std::shared_ptr<const std::byte> owner, size_t size,
                               const std::string& where);

  const std::string& where() const { return where_; }
  /// In the order of their data.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Null when there is none of that name.
  const Entry* find(const std::string& name) const;

  /// The first byte of a tensor's data, which need not be aligned, in the mapping that it shares.
  std::shared_ptr<const std::byte> data(const Entry& entry) const {
    return {data_, data_.get() + entry.begin};
  }
  /// The tensor over the file's own memory, which stays mapped as long as the tensor lives; read
  /// only, though the type does not say so. Data that is not aligned for its type is copied.
  Tensor tensor(const Entry& entry) const;
  /// Throws Error when there is none of that name.
  Tensor tensor(const std::string& name) const;

 private:
  std::string where_;
  std::shared_ptr<const std::byte> data_;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// A place in a safetensors file as the command line writes it: `FILE.safetensors` or
/// `FILE.safetensors:NAME`.
struct TensorReference {
  std::string path;
  std::optional<std::string> name;
};
TensorReference parse_tensor_reference(const std::string& text);

/// The tensor that a reference means: the named one, else the one called `preferred`, else the only
/// one. Throws Error listing the names where that is not clear.
Tensor read_tensor(const TensorReference& reference, const std::string& preferred);

/// A tensor of i32 or i64 ids as rows: leading axes are flattened. Throws Error for another type,
/// fewer than one dimension, or an id that does not fit 32 bits.
struct IdRows {
  int64_t n_row = 0;
  int64_t length = 0;
  std::vector<int32_t> ids;
};
IdRows id_rows(const Tensor& tensor, const std::string& where);

/// A tensor that is to be written, and as what.
struct PlannedTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;

  size_t bytes() const { return static_cast<size_t>(shape.numel()) * size_of(dtype); }
};

/// Gives a planned tensor, by its index in the plan, when its turn comes; it is let go before the
/// next one is asked for. Of the planned shape, and of the planned type or, where that is f32, bf16
/// or f16, of another one of these: it is rounded to nearest even as it is written.
using TensorGiver = std::function<Tensor(size_t)>;

/// What rounding did to the values.
struct WriteSummary {
  /// Finite values that became infinite, and the first tensor with such.
  int64_t n_overflow = 0;
  std::string overflow_in;
};

/// Writes tensors in the order of the plan, whole or not at all (see replace_file). The same
/// tensors give the same bytes. Throws Error naming the file, and the tensor where one does not fit
/// its plan, and before the first byte when the disk has too little space.
WriteSummary write_safetensors(const std::string& path, const std::vector<PlannedTensor>& plan,
                               const TensorGiver& give,
                               const std::map<std::string, std::string>& metadata);

/// The same for tensors at hand, written as what they are.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace dcformer
