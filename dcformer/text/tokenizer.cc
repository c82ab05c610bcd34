#include "dcformer/text/tokenizer.h"

#include <filesystem>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/parallel.h"
#include "dcformer/io/json_file.h"
#include "dcformer/text/byte_tokenizer.h"
#include "dcformer/text/huggingface_tokenizer.h"
#include "dcformer/text/sentencepiece_tokenizer.h"

namespace dcformer {
namespace {

/// Every id is its token_bytes().
class TokenBytesStream : public TextStream {
 public:
  explicit TokenBytesStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void push(int32_t id, std::string& bytes) override { bytes += tokenizer_.token_bytes(id); }
  void finish(std::string&) override {}

 private:
  const Tokenizer& tokenizer_;
};

std::unique_ptr<Tokenizer> load_file(const std::string& path) {
  if (path.ends_with(".json")) return HuggingFaceTokenizer::read_file(path);
  return std::make_unique<SentencePieceTokenizer>(read_file(path), path);
}

bool is_byte_tokenizer(const std::string& config) {
  if (!std::filesystem::exists(config)) return false;
  const nlohmann::json json = read_json_file(config);
  return json.is_object() && json.value("tokenizer_class", nlohmann::json()) == "ByteTokenizer";
}

}  // namespace

void Tokenizer::require_id(int32_t id, size_t position) const {
  require(id >= 0 && id < vocab_size(),
          "tokenizer: id {} at position {} is outside the vocabulary of {}", id, position,
          vocab_size());
}

std::vector<std::vector<int32_t>> Tokenizer::encode_all(Context& context,
                                                        std::span<const std::string_view> documents,
                                                        const EncodeOptions& options) const {
  std::vector<std::vector<int32_t>> ids(documents.size());
  parallel_for(context, static_cast<int64_t>(documents.size()), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    ids[at] = encode_with(documents[at], options);
  });
  return ids;
}

std::unique_ptr<TextStream> Tokenizer::text_stream(const DecodeOptions&) const {
  return std::make_unique<TokenBytesStream>(*this);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string bytes;
  const auto stream = text_stream(options);
  for (size_t i = 0; i < ids.size(); ++i) {
    require_id(ids[i], i);
    stream->push(ids[i], bytes);
  }
  stream->finish(bytes);
  return bytes;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  require(fs::exists(path), "{}: no such file or folder, expected a tokenizer", path);
  if (!fs::is_directory(path)) return load_file(path);
  if (auto tokenizer = HuggingFaceTokenizer::read_tokenizer_json(path)) return tokenizer;
  const std::string model = path + "/tokenizer.model";
  if (fs::exists(model)) return load_file(model);
  if (auto tokenizer = HuggingFaceTokenizer::read_vocab_and_merges(path)) return tokenizer;
  if (is_byte_tokenizer(path + "/tokenizer_config.json")) return std::make_unique<ByteTokenizer>();
  fail(
      "{}: no tokenizer; looked for tokenizer.json, tokenizer.model, vocab.json with merges.txt, "
      "and a tokenizer_config.json of class ByteTokenizer",
      path);
}

}  // namespace dcformer
