// PyTorch files, the zip archives and the older form: whatever the bytes say, nothing is executed,
// and tensors lie inside them.

#include <algorithm>
#include <vector>

#include "dcformer/io/pickle.h"
#include "dcformer/io/torch_file.h"
#include "dcformer/io/zip_archive.h"
#include "tests/fuzz/exact_copy.h"
#include "tests/fuzz/only_errors.h"

namespace dcformer::test {
namespace {

void read_all(const TensorSource& source, size_t size) {
  for (const StoredTensor& tensor : source.tensors()) {
    // A tensor has no more elements than its storage, and that lies in the file.
    must_hold(stored_bytes(tensor) <= size);
    const int64_t numel = tensor.shape.numel();
    const int64_t n = std::min<int64_t>(numel, 1000);
    std::vector<float> values(static_cast<size_t>(n));
    source.read(tensor.name, 0, std::span(values));
    source.read(tensor.name, numel - n, std::span(values));
    if (const auto bytes = source.bytes(tensor.name)) {
      uint8_t sum = 0;
      for (const std::byte b : *bytes) sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(b));
      volatile uint8_t read = sum;
      static_cast<void>(read);
    }
    source.mapped(tensor.name);
  }
}

}  // namespace
}  // namespace dcformer::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dcformer;
  const std::shared_ptr<const std::byte> bytes = test::exact_copy(data, size);
  test::only_errors([&] {
    const auto source = parse_torch_file(bytes, size, "input");
    test::read_all(*source, size);
  });
  // Most inputs are no whole file, but may be one of its parts.
  test::only_errors([&] { Pickle::parse({bytes.get(), size}, 0, "input"); });
  test::only_errors([&] {
    const ZipArchive archive = ZipArchive::parse({bytes.get(), size}, "input");
    size_t total = 0;
    for (const ZipArchive::Member& member : archive.members()) total += member.size;
    test::must_hold(total <= size);
  });
  return 0;
}
