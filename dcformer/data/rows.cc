#include "dcformer/data/rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dcformer/base/check.h"
#include "dcformer/base/random.h"
#include "dcformer/io/safetensors.h"

namespace dcformer {

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

RowSet RowSet::read(const std::string& reference) {
  IdRows rows = id_rows(read_tensor(parse_tensor_reference(reference), "rows"), reference);
  require(rows.n_row > 0, "{}: there are no rows", reference);
  require(rows.length >= 2, "{}: rows of {} ids, expected at least 2", reference, rows.length);
  RowSet set;
  set.ids_ = std::move(rows.ids);
  for (int64_t r = 0; r < rows.n_row; ++r) {
    set.begin_.push_back(static_cast<size_t>(r * rows.length));
    set.size_.push_back(static_cast<size_t>(rows.length));
  }
  return set;
}

std::span<const int32_t> RowSet::row(int64_t r) const {
  return std::span(ids_).subspan(begin_[static_cast<size_t>(r)], size_[static_cast<size_t>(r)]);
}

void RowSet::check_vocabulary(int64_t vocab_size, const std::string& where) const {
  for (int64_t r = 0; r < n_row(); ++r) {
    const std::span<const int32_t> ids = row(r);
    for (size_t i = 0; i < ids.size(); ++i)
      require(ids[i] >= 0 && ids[i] < vocab_size,
              "{}: row {}, place {}: id {} is outside the vocabulary of {}", where, r, i, ids[i],
              vocab_size);
  }
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
