#include "dcformer/text/tokenizer.h"

#include <filesystem>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/io/json_file.h"
#include "dcformer/text/byte_tokenizer.h"
#include "dcformer/text/sentencepiece_tokenizer.h"

namespace dcformer {

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) {
    require(ids[i] >= 0 && ids[i] < vocab_size(),
            "tokenizer: id {} at position {} is outside the vocabulary of {}", ids[i], i,
            vocab_size());
    bytes += token_bytes(ids[i]);
  }
  return bytes;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  require(fs::exists(path), "{}: no such file or folder, expected a tokenizer", path);
  if (!fs::is_directory(path))
    return std::make_unique<SentencePieceTokenizer>(read_file(path), path);
  const std::string model = path + "/tokenizer.model";
  if (fs::exists(model)) return std::make_unique<SentencePieceTokenizer>(read_file(model), model);
  const std::string config = path + "/tokenizer_config.json";
  if (fs::exists(config)) {
    const nlohmann::json json = read_json_file(config);
    if (json.is_object() && json.value("tokenizer_class", nlohmann::json()) == "ByteTokenizer")
      return std::make_unique<ByteTokenizer>();
  }
  fail(
      "{}: no tokenizer; looked for tokenizer.model, and a tokenizer_config.json of class "
      "ByteTokenizer",
      path);
}

}  // namespace dcformer
