#include "dcformer/text/byte_tokenizer.h"

#include <array>
#include <numeric>

#include "dcformer/base/file.h"

namespace dcformer {

std::vector<int32_t> ByteTokenizer::encode(std::string_view bytes) const {
  std::vector<int32_t> ids;
  ids.reserve(bytes.size());
  for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string_view ByteTokenizer::token_bytes(int32_t id) const {
  static const std::array<char, 256> bytes = [] {
    std::array<char, 256> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i);
    return all;
  }();
  return id < 256 ? std::string_view(&bytes[static_cast<size_t>(id)], 1) : std::string_view();
}

void ByteTokenizer::save(const std::string& folder) const {
  replace_file(folder + "/tokenizer_config.json", "{\"tokenizer_class\": \"ByteTokenizer\"}\n");
}

}  // namespace dcformer
