#include "dcformer/io/zarr_source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <numeric>

#include "dcformer/base/check.h"
#include "dcformer/io/zarr_array.h"

namespace dcformer {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The names of the folders in a folder, sorted; none when it cannot be read.
std::vector<std::string> folder_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    std::error_code ignored;
    if (i->is_directory(ignored)) names.push_back(i->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool holds_arrays(const std::string& folder) {
  const std::vector<std::string> names = folder_names(folder);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return exists(folder + "/" + name + "/.zarray");
  });
}

// "" when there is none.
std::string arrays_of_step(const std::string& folder) {
  for (const char* name : {"", "/state", "/items", "/default"})
    if (holds_arrays(folder + name)) return folder + name;
  return "";
}

// Of the folders named by a number the one of the highest; "" when there is none.
std::string newest_step(const std::string& folder) {
  int64_t newest = -1;
  for (const std::string& name : folder_names(folder)) {
    int64_t step = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (error == std::errc() && end == name.data() + name.size()) newest = std::max(newest, step);
  }
  return newest < 0 ? "" : folder + "/" + std::to_string(newest);
}

std::vector<StoredTensor> stored_tensors(const std::vector<ZarrArray>& arrays) {
  std::vector<StoredTensor> tensors;
  for (const ZarrArray& array : arrays)
    tensors.push_back({fs::path(array.folder()).filename().string(), array.metadata().dtype,
                       array.metadata().shape, array.folder()});
  return tensors;
}

class ZarrSource : public TensorSource {
 public:
  ZarrSource(const std::string& folder, std::vector<ZarrArray> arrays)
      : TensorSource(folder, stored_tensors(arrays)), arrays_(std::move(arrays)) {}

 private:
  // Chunks lie in files of their own, mostly compressed.
  std::shared_ptr<const std::byte> contiguous(size_t) const override { return nullptr; }

  // Converts a run, or the part of it inside [0, to.n), to place `at` of the target.
  static void put(const ZarrMetadata& metadata, const std::byte* data, int64_t n, int64_t at,
                  const ElementTarget& to) {
    const int64_t skipped = std::max<int64_t>(0, -at);
    const int64_t end = std::min(n, to.n - at);
    if (skipped >= end) return;
    const ElementTarget part = to.part(at + skipped, end - skipped);
    if (data == nullptr) return fill_elements(metadata.fill, part);
    data += static_cast<size_t>(skipped) * size_of(metadata.dtype);
    read_elements(metadata.dtype, data, 1, part);
  }

  // The place of an index in row-major order, axes of stride 0 left out.
  static int64_t place_of(const std::vector<int64_t>& index, const std::vector<int64_t>& strides) {
    return std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0});
  }

  static std::vector<int64_t> strides_of(const std::vector<int64_t>& extents) {
    std::vector<int64_t> strides(extents.size(), 1);
    for (size_t i = extents.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * extents[i + 1];
    return strides;
  }

  void read_range(size_t index, int64_t begin, const ElementTarget& to) const override {
    const ZarrArray& array = arrays_[index];
    ZarrArray::Region region = array.whole();
    const std::vector<int64_t> strides = strides_of(region.end);
    region.begin[0] = begin / strides[0];
    region.end[0] = (begin + to.n - 1) / strides[0] + 1;
    array.visit(region, [&](const std::vector<int64_t>& at, const std::byte* data, int64_t n) {
      put(array.metadata(), data, n, place_of(at, strides) - begin, to);
    });
  }

  void read_axis(size_t index, int axis, int64_t at, const ElementTarget& to) const override {
    const ZarrArray& array = arrays_[index];
    ZarrArray::Region region = array.whole();
    const auto sliced = static_cast<size_t>(axis);
    std::vector<int64_t> extents = region.end;
    extents[sliced] = 1;
    std::vector<int64_t> strides = strides_of(extents);
    strides[sliced] = 0;
    region.begin[sliced] = at;
    region.end[sliced] = at + 1;
    array.visit(region, [&](const std::vector<int64_t>& from, const std::byte* data, int64_t n) {
      put(array.metadata(), data, n, place_of(from, strides), to);
    });
  }

  std::vector<ZarrArray> arrays_;
};

}  // namespace

std::unique_ptr<TensorSource> open_zarr_folder(const std::string& folder,
                                               const std::string& prefix) {
  std::vector<ZarrArray> arrays;
  for (const std::string& name : folder_names(folder)) {
    const std::string path = folder + "/" + name;
    if (!name.starts_with(prefix)) continue;
    require(!exists(path + "/zarr.json"), "{}: is of zarr's format 3, expected format 2", path);
    if (exists(path + "/.zarray")) arrays.emplace_back(path);
  }
  require(!arrays.empty() || !exists(folder + "/manifest.ocdbt"),
          "{}: holds its arrays in one OCDBT database, expected a folder for each", folder);
  require(!arrays.empty(), "{}: holds no zarr arrays, folders '{}…' with a .zarray", folder,
          prefix);
  return std::make_unique<ZarrSource>(folder, std::move(arrays));
}

std::string find_orbax_arrays(const std::string& path) {
  std::string found = arrays_of_step(path);
  for (const char* name : {"", "/checkpoint", "/checkpoints"}) {
    if (!found.empty()) break;
    const std::string step = newest_step(path + name);
    if (!step.empty()) found = arrays_of_step(step);
  }
  require(!found.empty(),
          "{}: holds no Orbax checkpoint; looked for folders with a .zarray in it, in its state, "
          "items or default, and in those of the highest step in it, in checkpoint or in "
          "checkpoints",
          path);
  return found;
}

}  // namespace dcformer
