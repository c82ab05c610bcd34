#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dcformer/base/context.h"
#include "dcformer/text/tokenizer.h"

namespace dcformer {

/// The texts of files, cut into a training and a validation part each: after the first line break
/// at or past byte floor(0.95·n) of n. A file is one document in each part (a validation part may
/// be empty).
struct TextSplit {
  std::vector<std::string> training;
  std::vector<std::string> validation;
};

/// Reads and splits files (also .gz; see read_text_file for errors).
TextSplit read_text_split(const std::vector<std::string>& paths);

/// Ids of documents, each followed by the end-of-document token, one after the other; and the bytes
/// that they stand for.
struct TokenStream {
  std::vector<int32_t> ids;
  int64_t bytes = 0;
};

TokenStream tokenize(Context& context, const Tokenizer& tokenizer,
                     const std::vector<std::string>& documents);

}  // namespace dcformer
