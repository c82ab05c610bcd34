#include <spdlog/spdlog.h>

#include <filesystem>
#include <string>

#include "benchmarks/bench.h"
#include "dcformer/io/text_file.h"
#include "dcformer/text/huggingface_tokenizer.h"
#include "dcformer/text/pattern.h"

namespace dcformer::bench {
namespace {

// GPT-2's, which is no part of the project: the tests look for it in the same place.
constexpr const char* kTokenizer = DCFORMER_SOURCE_DIR "/../shared/fixtures/tokenizers/gpt2";
constexpr const char* kText = DCFORMER_SOURCE_DIR "/data/austen.txt.gz";
// GPT-2's pieces: contractions, words, numbers and signs with the blank before them, blanks.
constexpr const char* kPieces =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// How often PCRE2 alone finds a piece in the text.
int64_t scan(const Pattern& pattern, PatternMemory& memory, const std::string& text) {
  PatternMatches matches(pattern, text, memory);
  int64_t n = 0;
  size_t begin = 0;
  size_t end = 0;
  while (matches.next(begin, end)) ++n;
  return n;
}

}  // namespace

void bench_tokenizer(Bench& bench) {
  if (!std::filesystem::exists(kTokenizer)) {
    spdlog::warn("{}: is not here: tokenizer.encode_over_scan is left out", kTokenizer);
    return;
  }
  const std::string text = read_text_file(kText);
  const auto tokenizer = load_tokenizer(kTokenizer);
  const Pattern pattern(kPieces, Pattern::Kind::regex, "the pattern of the pieces");
  PatternMemory memory;
  size_t n_id = 0;
  int64_t n_piece = 0;
  const auto seconds = bench.alternate(5, {[&] { n_id += tokenizer->encode(text).size(); },
                                           [&] { n_piece += scan(pattern, memory, text); }});
  bench.add({"tokenizer.encode_over_scan", seconds[0] / seconds[1], "1", "<= 2",
             "encode / PCRE2 alone finding the pieces (GPT-2, austen, one thread)"});
  bench.add({"tokenizer.encode", static_cast<double>(text.size()) / seconds[0] * 1e-6, "MB/s", "",
             "encode (GPT-2, austen, one thread)"});
}

}  // namespace dcformer::bench
