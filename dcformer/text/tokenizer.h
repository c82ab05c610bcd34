#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dcformer/base/context.h"

namespace dcformer {

/// What Tokenizer::encode_with does beside cutting the text into ids.
struct EncodeOptions {
  /// Adds the ids that the tokenizer puts around a text (the beginning of a document, say).
  bool add_special = false;
  /// Special tokens written in the text become their ids.
  bool recognise_special = false;
};

/// What becomes of ids in decoding.
struct DecodeOptions {
  /// Special tokens are written as the tokenizer names them, where it does; else they are left out.
  bool keep_special = false;
};

/// A text that is decoded id by id.
class TextStream {
 public:
  virtual ~TextStream() = default;
  /// Adds to `bytes` what the id, which must be within the vocabulary, makes certain.
  virtual void push(int32_t id, std::string& bytes) = 0;
  /// Adds what is left, and begins a new text.
  virtual void finish(std::string& bytes) = 0;
};

/// Turns bytes into ids and back. decode(encode(x)) is x, for any bytes x, unless the tokenizer is
/// one that rewrites its text (by Unicode normalisation, say).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "bpe" or "byte".
  virtual std::string kind() const = 0;
  /// The largest id and one.
  virtual int64_t vocab_size() const = 0;
  /// The id that ends a document; it stands for no bytes. -1 where there is none.
  virtual int32_t end_of_document() const = 0;
  /// Special ids are never among the result, whatever the text says (but that of unknown
  /// characters, of tokenizers that have no ids for some).
  virtual std::vector<int32_t> encode(std::string_view bytes) const = 0;
  /// The same with options. Tokenizers without special tokens that have a text take no notice.
  virtual std::vector<int32_t> encode_with(std::string_view bytes, const EncodeOptions&) const {
    return encode(bytes);
  }
  /// encode_with() of each document, on the Context's threads.
  std::vector<std::vector<int32_t>> encode_all(Context& context,
                                               std::span<const std::string_view> documents,
                                               const EncodeOptions& options = {}) const;
  /// The bytes that an id stands for within a text; none for special ids. `id` must be within the
  /// vocabulary.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  /// A new text to decode; the tokenizer must outlive it. The first id of a text can stand for
  /// other bytes than token_bytes().
  virtual std::unique_ptr<TextStream> text_stream(const DecodeOptions& options = {}) const;
  /// Writes the tokenizer's files into a folder that exists.
  virtual void save(const std::string& folder) const = 0;

  /// The bytes of all ids: those that text_stream() gives for them one by one. Throws Error for an
  /// id outside the vocabulary, naming it and its place.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;
  /// Throws Error, naming `position`, for an id outside the vocabulary.
  void require_id(int32_t id, size_t position) const;
};

/// Reads the tokenizer of a folder: the first there of `tokenizer.json`, `tokenizer.model`
/// (SentencePiece), `vocab.json` with `merges.txt`, and `tokenizer_config.json` of a byte
/// tokenizer. Or a file: a `tokenizer.json` (any name that ends in .json), or a SentencePiece
/// model. Throws Error saying what was looked for.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace dcformer
