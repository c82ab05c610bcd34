#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dcformer/text/tokenizer.h"
#include "dcformer/text/tokenizer_config.h"
#include "dcformer/text/tokenizer_parts.h"

namespace dcformer {

/// Byte-pair encoding as published models have it: byte-level (GPT-2, NeoX, Qwen) or with byte
/// fallback, from tokenizer.json or from vocab.json and merges.txt. The ids are those of the
/// library tokenizers for any well-formed UTF-8.
///
/// Bytes that are not UTF-8 keep their value in byte-level models and in those with byte tokens;
/// in others they are read as U+FFFD. Decoding gives bytes as they are too, where that library
/// writes U+FFFD for those that form no character.
class HuggingFaceTokenizer : public Tokenizer {
 public:
  /// Puts the parts together. `files` is what save() writes, by name. Throws Error, naming the file
  /// and the key, when two tokens have one id, one token two ids, a merge names none, or the id
  /// that ends documents is that of no special token.
  HuggingFaceTokenizer(TokenizerParts parts, std::map<std::string, std::string> files);
  ~HuggingFaceTokenizer() override;

  /// From the text of a tokenizer.json; `where` names it in messages.
  static std::unique_ptr<HuggingFaceTokenizer> parse(std::string text, const std::string& where);
  /// From a tokenizer.json alone.
  static std::unique_ptr<HuggingFaceTokenizer> read_file(const std::string& path);
  /// From a folder's tokenizer.json; tokenizer_config.json, special_tokens_map.json and
  /// generation_config.json beside it say which token ends a document. Null where it is missing.
  static std::unique_ptr<HuggingFaceTokenizer> read_tokenizer_json(const std::string& folder);
  /// From a folder's vocab.json and merges.txt, as the class in tokenizer_config.json reads them:
  /// GPT-2's, if none is named, or Qwen2's. Null where either is missing.
  static std::unique_ptr<HuggingFaceTokenizer> read_vocab_and_merges(const std::string& folder);

  std::string kind() const override { return "bpe"; }
  int64_t vocab_size() const override { return decoder_.tokens().vocab_size(); }
  int32_t end_of_document() const override { return end_of_document_; }
  std::vector<int32_t> encode(std::string_view bytes) const override;
  std::vector<int32_t> encode_with(std::string_view bytes,
                                   const EncodeOptions& options) const override;
  std::string_view token_bytes(int32_t id) const override;
  std::unique_ptr<TextStream> text_stream(const DecodeOptions& options = {}) const override;
  void save(const std::string& folder) const override;

 private:
  struct Memory;
  class MemoryLease;

  void encode_text(std::string_view text, bool at_beginning, const EncodeOptions& options,
                   Memory& memory, std::vector<int32_t>& ids) const;

  BpeModel model_;
  /// Found in the text as it is, and as it is normalised.
  AddedTokenFinder plain_tokens_;
  AddedTokenFinder normalized_tokens_;
  TokenDecoder decoder_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::vector<int32_t> prefix_, suffix_;
  int32_t end_of_document_;
  std::map<std::string, std::string> files_;
  /// What calls of encode() have worked in and others can use again: as many as there were at a
  /// time.
  mutable std::mutex memories_mutex_;
  mutable std::vector<std::unique_ptr<Memory>> memories_;
};

}  // namespace dcformer
