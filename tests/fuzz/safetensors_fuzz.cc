// Safetensors files: whatever the bytes say, tensors lie inside them.

#include "dcformer/io/safetensors.h"
#include "tests/fuzz/exact_copy.h"
#include "tests/fuzz/only_errors.h"

namespace dcformer::test {
namespace {

size_t sum_of_bytes(const Tensor& tensor) {
  size_t sum = 0;
  for (size_t i = 0; i < tensor.bytes(); ++i)
    sum += static_cast<size_t>(static_cast<const std::byte*>(tensor.raw())[i]);
  return sum;
}

void read_all(const SafetensorsFile& file, size_t size) {
  size_t total = 0;
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    const Tensor tensor = file.tensor(entry);
    total += tensor.bytes();
    volatile size_t read = sum_of_bytes(tensor);
    static_cast<void>(read);
    must_hold(file.find(entry.name) != nullptr);
    only_errors([&] { id_rows(tensor, entry.name); });
  }
  // No two tensors overlap.
  must_hold(total <= size);
}

}  // namespace
}  // namespace dcformer::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dcformer;
  test::only_errors([&] {
    const auto file = SafetensorsFile::parse(test::exact_copy(data, size), size, "input");
    test::read_all(file, size);
  });
  return 0;
}
