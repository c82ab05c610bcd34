// Indices of shards: files that are named lie in the index's own folder.

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "dcformer/io/tensor_shards.h"
#include "tests/fuzz/only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dcformer;
  test::only_errors([&] {
    const ShardIndex index =
        parse_shard_index(std::string_view(reinterpret_cast<const char*>(data), size), "input");
    test::must_hold(!index.file_of.empty() && index.files().size() <= index.file_of.size());
    const std::filesystem::path folder = "/folder";
    for (const std::string& file : index.files()) {
      const std::filesystem::path path = (folder / file).lexically_normal();
      test::must_hold(path.parent_path() == folder && path.filename() == file);
    }
  });
  return 0;
}
