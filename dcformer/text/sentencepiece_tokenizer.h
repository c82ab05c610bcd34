#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dcformer/text/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace dcformer {

/// Byte-pair encoding by the SentencePiece library, with byte fallback, identity normalisation and
/// no dummy prefix. The library alone does not give every text back (it maps U+2581 to a blank and
/// invalid bytes to U+FFFD), so such places are encoded as byte pieces here, and pieces are turned
/// into bytes here too.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// From the bytes of a model file; `where` names them in messages. Throws Error for a broken
  /// model, one that the library cannot be trusted with (see check_sentencepiece_model), or one
  /// without byte pieces or with a dummy prefix.
  SentencePieceTokenizer(std::string model, const std::string& where);
  ~SentencePieceTokenizer() override;

  /// Trains on texts, line by line (at most some 8 MB of them, lines chosen evenly). A line break
  /// is a piece of its own. The same texts give the same model. Throws Error when the texts are too
  /// small for the vocabulary, or the vocabulary too small for the 256 bytes and the texts'
  /// characters.
  static std::unique_ptr<SentencePieceTokenizer> train(const std::vector<std::string>& texts,
                                                       int64_t vocab_size);

  std::string kind() const override { return "bpe"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_document() const override;
  std::vector<int32_t> encode(std::string_view bytes) const override;
  std::string_view token_bytes(int32_t id) const override {
    return pieces_[static_cast<size_t>(id)];
  }
  void save(const std::string& folder) const override;

 private:
  void encode_clean(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const;

  std::string model_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  /// The bytes that each id stands for.
  std::vector<std::string> pieces_;
  std::vector<int32_t> byte_ids_;
};

}  // namespace dcformer
