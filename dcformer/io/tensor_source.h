#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dcformer/io/stored_elements.h"
#include "dcformer/tensor/tensor.h"

namespace dcformer {

/// A tensor as it is stored.
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  /// The file or folder that holds it, for messages.
  std::string file;
};

/// A set of named tensors on disk, whatever the format: what a loader of models reads from. The
/// files are mapped; nothing is read before it is asked for. All calls may come from several
/// threads at once.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;

  /// The file or folder, for messages.
  const std::string& where() const { return where_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null when there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  /// Throws Error when there is none of that name.
  const StoredTensor& at(std::string_view name) const { return tensors_[index_of(name)]; }
  /// What a user should hear of though it is no error, one sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// The elements `begin` … `begin + to.n - 1` in row-major order, converted. Ranges of whole rows
  /// of the first axis are the cheapest. Throws Error for a range outside the tensor and for data
  /// that turns out to be broken.
  void read(std::string_view name, int64_t begin, const ElementTarget& to) const;
  /// All elements whose index on `axis` is `index`, in row-major order: of [A,L,B] and axis 1 the
  /// elements of [A,B].
  void read_slice(std::string_view name, int axis, int64_t index, const ElementTarget& to) const;

  /// The stored bytes where they lie in the mapping one behind the other, else nothing. They are
  /// valid as long as the source lives, and need not be aligned.
  std::optional<std::span<const std::byte>> bytes(std::string_view name) const;
  /// The tensor over the mapping, which it keeps alive, where its bytes are contiguous and aligned
  /// for their type; else an undefined tensor: then `read` is the way. Read only, though the type
  /// does not say so.
  Tensor mapped(std::string_view name) const;

 protected:
  /// Throws Error when a name occurs twice.
  TensorSource(std::string where, std::vector<StoredTensor> tensors,
               std::vector<std::string> warnings = {});

  /// For sources made of others: what `contiguous` of another one gives.
  static std::shared_ptr<const std::byte> contiguous_of(const TensorSource& source,
                                                        std::string_view name) {
    return source.contiguous(source.index_of(name));
  }

 private:
  /// `index` counts in tensors(); the range was checked and is not empty.
  virtual void read_range(size_t index, int64_t begin, const ElementTarget& to) const = 0;
  /// By default one range for each index before the axis.
  virtual void read_axis(size_t index, int axis, int64_t at, const ElementTarget& to) const;
  /// The first byte of contiguous data, sharing the mapping; null where there is none.
  virtual std::shared_ptr<const std::byte> contiguous(size_t index) const = 0;

  size_t index_of(std::string_view name) const;

  std::string where_;
  std::vector<StoredTensor> tensors_;
  std::vector<std::string> warnings_;
  std::unordered_map<std::string_view, size_t> index_;
};

/// The number of bytes that a tensor's elements take in its file.
size_t stored_bytes(const StoredTensor& tensor);

}  // namespace dcformer
