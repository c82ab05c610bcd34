#include "tests/reference/embedding.h"

#include <cstddef>

namespace dcformer::reference {

std::vector<double> embedding(const std::vector<int32_t>& ids, const std::vector<double>& table,
                              int64_t width) {
  std::vector<double> y;
  for (int32_t id : ids)
    for (int64_t e = 0; e < width; ++e) y.push_back(table.at(id * width + e));
  return y;
}

std::vector<double> embedding_backward(const std::vector<int32_t>& ids, int64_t table_size,
                                       int64_t width, const std::vector<double>& dy) {
  std::vector<double> dtable(table_size);
  for (size_t n = 0; n < ids.size(); ++n)
    for (int64_t e = 0; e < width; ++e) dtable.at(ids[n] * width + e) += dy[n * width + e];
  return dtable;
}

}  // namespace dcformer::reference
