#pragma once

#include "dcformer/text/tokenizer.h"

namespace dcformer {

/// One id a byte (0 … 255), and 256 as the end of a document.
class ByteTokenizer : public Tokenizer {
 public:
  std::string kind() const override { return "byte"; }
  int64_t vocab_size() const override { return 257; }
  int32_t end_of_document() const override { return 256; }
  std::vector<int32_t> encode(std::string_view bytes) const override;
  std::string_view token_bytes(int32_t id) const override;
  void save(const std::string& folder) const override;
};

}  // namespace dcformer
