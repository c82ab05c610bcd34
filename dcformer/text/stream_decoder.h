#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dcformer/text/tokenizer.h"

namespace dcformer {

/// Text as it comes, id by id: only whole characters are given out. Everything that was given out,
/// in order, is decode() of all ids.
class StreamDecoder {
 public:
  /// The tokenizer must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(tokenizer), text_(tokenizer.text_stream(options)) {}

  /// The characters that the id completes. Bytes that cannot become a character any more are passed
  /// on.
  std::string push(int32_t id);
  /// What is left: the beginning of a character that never came, say. A new text begins.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::unique_ptr<TextStream> text_;
  size_t n_pushed_ = 0;
  std::string pending_;
};

}  // namespace dcformer
