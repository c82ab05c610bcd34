#include "dcformer/data/corpus.h"

#include "dcformer/base/parallel.h"
#include "dcformer/io/text_file.h"

namespace dcformer {
namespace {

// A text in parts that end with a line break once they have some 64 KB: no token reaches over one,
// so the parts' ids are the text's.
std::vector<std::string_view> parts_of(std::string_view text) {
  constexpr size_t kPart = 65536;
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t found = text.size() <= kPart ? std::string_view::npos : text.find('\n', kPart);
    const size_t n = found == std::string_view::npos ? text.size() : found + 1;
    parts.push_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return parts;
}

}  // namespace

TextSplit read_text_split(const std::vector<std::string>& paths) {
  TextSplit split;
  for (const std::string& path : paths) {
    const std::string text = read_text_file(path);
    // floor(0.95·n) in whole numbers.
    const size_t from = text.size() / 20 * 19 + text.size() % 20 * 19 / 20;
    const size_t found = text.find('\n', from);
    const size_t cut = found == std::string::npos ? text.size() : found + 1;
    split.training.push_back(text.substr(0, cut));
    split.validation.push_back(text.substr(cut));
  }
  return split;
}

TokenStream tokenize(Context& context, const Tokenizer& tokenizer,
                     const std::vector<std::string>& documents) {
  TokenStream stream;
  for (const std::string& document : documents) {
    if (document.empty()) continue;
    stream.bytes += static_cast<int64_t>(document.size());
    const std::vector<std::string_view> parts = parts_of(document);
    std::vector<std::vector<int32_t>> ids(parts.size());
    parallel_for(context, static_cast<int64_t>(parts.size()), [&](int64_t i) {
      ids[static_cast<size_t>(i)] = tokenizer.encode(parts[static_cast<size_t>(i)]);
    });
    for (const std::vector<int32_t>& part : ids)
      stream.ids.insert(stream.ids.end(), part.begin(), part.end());
    if (tokenizer.end_of_document() >= 0) stream.ids.push_back(tokenizer.end_of_document());
  }
  return stream;
}

}  // namespace dcformer
