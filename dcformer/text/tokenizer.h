#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dcformer {

/// Turns bytes into ids and back. decode(encode(x)) is x, for any bytes x.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "bpe" or "byte".
  virtual std::string kind() const = 0;
  virtual int64_t vocab_size() const = 0;
  /// The id that ends a document; it stands for no bytes. -1 where there is none.
  virtual int32_t end_of_document() const = 0;
  /// Special ids are never among the result, whatever the text says.
  virtual std::vector<int32_t> encode(std::string_view bytes) const = 0;
  /// The bytes that an id stands for; none for special ids. `id` must be within the vocabulary.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  /// Writes the tokenizer's file into a folder that exists.
  virtual void save(const std::string& folder) const = 0;

  /// The bytes of all ids. Throws Error for an id outside the vocabulary, naming it and its place.
  std::string decode(std::span<const int32_t> ids) const;
};

/// Reads the tokenizer of a folder (`tokenizer.model`, or `tokenizer_config.json` of a byte
/// tokenizer), or a SentencePiece `.model` file. Throws Error saying what was looked for.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace dcformer
