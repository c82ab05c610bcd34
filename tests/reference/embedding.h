#pragma once

#include <cstdint>
#include <vector>

namespace dcformer::reference {

/// Row ids[n] of the table [V,E] for every n; `width` is E.
std::vector<double> embedding(const std::vector<int32_t>& ids, const std::vector<double>& table,
                              int64_t width);

/// The table's gradient: rows of dy [N,E] summed where their ids agree. `table_size` is V·E.
std::vector<double> embedding_backward(const std::vector<int32_t>& ids, int64_t table_size,
                                       int64_t width, const std::vector<double>& dy);

}  // namespace dcformer::reference
