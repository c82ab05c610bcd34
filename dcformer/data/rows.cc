#include "dcformer/data/rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dcformer/base/check.h"
#include "dcformer/base/hash.h"
#include "dcformer/base/random.h"
#include "dcformer/io/safetensors.h"

namespace dcformer {

void check_ids(std::span<const int32_t> ids, int64_t row, int64_t vocab_size,
               const std::string& where) {
  for (size_t i = 0; i < ids.size(); ++i)
    require(ids[i] >= 0 && ids[i] < vocab_size,
            "{}: row {}, place {}: id {} is outside the vocabulary of {}", where, row, i, ids[i],
            vocab_size);
}

RowSet RowSet::cut(std::vector<int32_t> stream, int64_t sequence_length, bool keep_rest,
                   const std::string& where) {
  require(sequence_length >= 1, "{}: sequence length is {}, expected at least 1", where,
          sequence_length);
  RowSet set;
  set.ids_ = std::move(stream);
  const auto step = static_cast<size_t>(sequence_length);
  size_t begin = 0;
  for (; begin + step < set.ids_.size(); begin += step) {
    set.begin_.push_back(begin);
    set.size_.push_back(step + 1);
  }
  const size_t rest = set.ids_.size() - std::min(begin, set.ids_.size());
  if (keep_rest && rest > 1) {
    set.begin_.push_back(begin);
    set.size_.push_back(rest);
  } else if (rest > 1) {
    set.n_left_out_ = static_cast<int64_t>(rest) - 1;
  }
  require(!set.begin_.empty(), "{}: the text has {} tokens, too few for a row of {}", where,
          set.ids_.size(), keep_rest ? 2 : sequence_length + 1);
  return set;
}

namespace {

// How many ids of each row count: `lengths` of the same file, or all of them.
std::vector<size_t> row_lengths(const std::string& path, const IdRows& rows) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const SafetensorsFile::Entry* entry = file.find("lengths");
  if (entry == nullptr)
    return std::vector<size_t>(static_cast<size_t>(rows.n_row), static_cast<size_t>(rows.length));
  const IdRows lengths = id_rows(file.tensor(*entry), path + ": 'lengths'");
  require(static_cast<int64_t>(lengths.ids.size()) == rows.n_row,
          "{}: 'lengths' has {} values, expected one for each of the {} rows", path,
          lengths.ids.size(), rows.n_row);
  std::vector<size_t> result;
  for (size_t r = 0; r < lengths.ids.size(); ++r) {
    const int32_t n = lengths.ids[r];
    require(n >= 2 && n <= rows.length, "{}: 'lengths': row {} has length {}, expected 2 to {}",
            path, r, n, rows.length);
    result.push_back(static_cast<size_t>(n));
  }
  return result;
}

}  // namespace

RowSet RowSet::read(const std::string& reference) {
  const TensorReference place = parse_tensor_reference(reference);
  IdRows rows = id_rows(read_tensor(place, "rows"), reference);
  require(rows.n_row > 0, "{}: there are no rows", reference);
  require(rows.length >= 2, "{}: rows of {} ids, expected at least 2", reference, rows.length);
  RowSet set;
  set.size_ = row_lengths(place.path, rows);
  set.ids_ = std::move(rows.ids);
  for (int64_t r = 0; r < rows.n_row; ++r)
    set.begin_.push_back(static_cast<size_t>(r * rows.length));
  return set;
}

std::string RowSet::hash() const {
  const auto bytes = [](const auto& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(values[0]));
  };
  return xxh3_128(xxh3_128(bytes(ids_)) + xxh3_128(bytes(begin_)) + xxh3_128(bytes(size_)));
}

std::span<const int32_t> RowSet::row(int64_t r) const {
  return std::span(ids_).subspan(begin_[static_cast<size_t>(r)], size_[static_cast<size_t>(r)]);
}

void RowSet::check_vocabulary(int64_t vocab_size, const std::string& where) const {
  for (int64_t r = 0; r < n_row(); ++r) check_ids(row(r), r, vocab_size, where);
}

int64_t RowSet::longest() const {
  return static_cast<int64_t>(*std::max_element(size_.begin(), size_.end())) - 1;
}

int64_t RowOrder::at(int64_t position) {
  const int64_t epoch = position / n_row_;
  const int64_t place = position % n_row_;
  if (!shuffle_) return place;
  if (epoch != epoch_) {
    permutation_.resize(static_cast<size_t>(n_row_));
    std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
    const Random random(seed_, static_cast<uint64_t>(epoch));
    // Fisher and Yates, from the end.
    for (uint64_t i = static_cast<uint64_t>(n_row_) - 1; i > 0; --i)
      std::swap(permutation_[i], permutation_[random.below(i, i + 1)]);
    epoch_ = epoch;
  }
  return permutation_[static_cast<size_t>(place)];
}

}  // namespace dcformer
