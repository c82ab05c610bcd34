#include "dcformer/train/not_finite.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "dcformer/tensor/all_finite.h"
#include "dcformer/train/row_batch.h"

namespace dcformer {
namespace {

constexpr size_t kMostNamed = 8;

std::string name_rows(const std::vector<int64_t>& rows) {
  const std::span<const int64_t> named(rows.data(), std::min(rows.size(), kMostNamed));
  const std::string rest =
      rows.size() > kMostNamed ? fmt::format(" and {} more", rows.size() - kMostNamed) : "";
  return fmt::format("row{} {}{}", rows.size() == 1 ? "" : "s", fmt::join(named, ", "), rest);
}

}  // namespace

std::string locate_not_finite(Context& context, const LanguageModel& model,
                              std::span<const int64_t> numbers,
                              const std::vector<std::span<const int32_t>>& rows) {
  std::vector<int64_t> faulty;
  std::string part;
  for (size_t i = 0; i < rows.size(); ++i) {
    RowBatch batch;
    batch.add(rows[i]);
    const std::string where =
        model.first_not_finite(context, batch.ids, batch.targets, batch.sequences);
    if (where.empty()) continue;
    if (faulty.empty()) part = where;
    faulty.push_back(numbers[i]);
  }
  for (const Parameter& p : model.parameters().all())
    if (!all_finite(p.value))
      return fmt::format("parameter {} holds a value that is not finite{}", p.spec.name,
                         faulty.empty() ? "" : "; seen in " + name_rows(faulty));
  if (!faulty.empty())
    return fmt::format("{}: the forward pass is not finite from {} on", name_rows(faulty), part);
  const auto& all = model.parameters().all();
  for (auto p = all.rbegin(); p != all.rend(); ++p)
    if (!all_finite(p->gradient))
      return fmt::format("rows {}: the forward pass is finite, the gradient of {} is not",
                         fmt::join(numbers, ", "), p->spec.name);
  return "the values have grown beyond the range of f32";
}

}  // namespace dcformer
