#include "dcformer/io/safetensors_source.h"

#include "dcformer/io/safetensors.h"

namespace dcformer {
namespace {

std::vector<StoredTensor> stored_tensors(const SafetensorsFile& file) {
  std::vector<StoredTensor> tensors;
  for (const SafetensorsFile::Entry& entry : file.entries())
    tensors.push_back({entry.name, entry.dtype, entry.shape, file.where()});
  return tensors;
}

class SafetensorsSource : public TensorSource {
 public:
  explicit SafetensorsSource(SafetensorsFile file)
      : TensorSource(file.where(), stored_tensors(file)), file_(std::move(file)) {}

 private:
  std::shared_ptr<const std::byte> contiguous(size_t index) const override {
    return file_.data(file_.entries()[index]);
  }

  void read_range(size_t index, int64_t begin, const ElementTarget& to) const override {
    const SafetensorsFile::Entry& entry = file_.entries()[index];
    const auto size = static_cast<int64_t>(size_of(entry.dtype));
    read_elements(entry.dtype, file_.data(entry).get() + begin * size, 1, to);
  }

  SafetensorsFile file_;
};

}  // namespace

std::unique_ptr<TensorSource> open_safetensors(const std::string& path) {
  return std::make_unique<SafetensorsSource>(SafetensorsFile::open(path));
}

}  // namespace dcformer
