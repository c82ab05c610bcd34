#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dcformer {

/// Throws Error naming `where`, the row and the place for an id outside 0 … vocab_size-1.
void check_ids(std::span<const int32_t> ids, int64_t row, int64_t vocab_size,
               const std::string& where);

/// Rows of ids to learn from: row r holds length(r) ids, for length(r) - 1 predictions of the next
/// one.
class RowSet {
 public:
  /// Rows of `sequence_length` + 1 ids that cover a stream: each row begins with the last id of the
  /// one before, so every id but the first is predicted once. The rest that fills no row is a
  /// shorter last row with `keep_rest`, else it is left out. Throws Error, naming `where`, when
  /// there is not one row.
  static RowSet cut(std::vector<int32_t> stream, int64_t sequence_length, bool keep_rest,
                    const std::string& where);
  /// Ready-made rows of n+1 ids from a safetensors file (`FILE.safetensors[:NAME]`; `rows` unless
  /// NAME is given, else the only tensor). Leading axes are flattened. Where the file has a tensor
  /// `lengths` of as many values as there are rows, only that many ids of each row count: the rest
  /// is padding, whatever its ids. Throws Error for a length below 2 or beyond the row.
  static RowSet read(const std::string& reference);

  int64_t n_row() const { return static_cast<int64_t>(begin_.size()); }
  std::span<const int32_t> row(int64_t r) const;
  /// The hash of all rows: equal for equal rows alone.
  std::string hash() const;
  /// Ids left out by `cut`.
  int64_t n_left_out() const { return n_left_out_; }
  /// Throws Error naming row, place and id for an id outside 0 … vocab_size-1.
  void check_vocabulary(int64_t vocab_size, const std::string& where) const;
  /// The longest row's predictions.
  int64_t longest() const;

 private:
  std::vector<int32_t> ids_;
  std::vector<size_t> begin_;
  std::vector<size_t> size_;
  int64_t n_left_out_ = 0;
};

/// The order in which rows are taken, epoch after epoch: a permutation drawn from (seed, epoch), or
/// the rows' own order. A position in the data is one number: the rows taken so far.
class RowOrder {
 public:
  RowOrder(int64_t n_row, bool shuffle, uint64_t seed)
      : n_row_(n_row), shuffle_(shuffle), seed_(seed) {}
  /// The row that is taken as number `position`.
  int64_t at(int64_t position);

 private:
  int64_t n_row_;
  bool shuffle_;
  uint64_t seed_;
  int64_t epoch_ = -1;
  std::vector<int64_t> permutation_;
};

}  // namespace dcformer
