#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/cli/commands.h"
#include "dcformer/cli/streams.h"
#include "dcformer/cli/validators.h"
#include "dcformer/io/text_file.h"
#include "dcformer/text/byte_tokenizer.h"
#include "dcformer/text/sentencepiece_tokenizer.h"
#include "dcformer/train/checkpoint_store.h"

namespace dcformer {
namespace {

struct TokenizerArguments {
  std::vector<std::string> files;
  int64_t vocab_size = 4096;
  std::string kind = "bpe";
  std::string output;
  std::string model;
  std::string input;
  bool special = false;
  bool plain = false;
};

std::string read_input(const std::string& path) {
  if (!path.empty()) return read_file(path);
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), stdin))
    text.append(buffer.data(), n);
  const bool whole = std::ferror(stdin) == 0;
  require(whole, "standard input: {}", std::strerror(errno));
  return text;
}

// A tokenizer's own file or folder, or the checkpoint of a run folder.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  const bool run = std::filesystem::exists(path + "/latest");
  return load_tokenizer(run ? model_folder(path) : path);
}

void train_tokenizer(const TokenizerArguments& arguments) {
  std::vector<std::string> texts;
  for (const std::string& file : arguments.files) texts.push_back(read_text_file(file));
  std::unique_ptr<Tokenizer> tokenizer;
  if (arguments.kind == "byte") {
    tokenizer = std::make_unique<ByteTokenizer>();
  } else {
    tokenizer = SentencePieceTokenizer::train(texts, arguments.vocab_size);
  }
  std::filesystem::create_directories(arguments.output);
  tokenizer->save(arguments.output);
}

void encode(const TokenizerArguments& arguments) {
  const auto tokenizer = open_tokenizer(arguments.model);
  std::string line;
  const EncodeOptions options{arguments.special, !arguments.plain};
  for (const int32_t id : tokenizer->encode_with(read_input(arguments.input), options))
    line += fmt::format("{}{}", line.empty() ? "" : " ", id);
  write_output(line + "\n");
}

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    require(error == std::errc() && end == word.data() + word.size(), "word {}: '{}' is not an id",
            ids.size() + 1, word.substr(0, 40));
    ids.push_back(id);
  }
  return ids;
}

void decode(const TokenizerArguments& arguments) {
  const auto tokenizer = open_tokenizer(arguments.model);
  write_output(tokenizer->decode(parse_ids(read_input(arguments.input)), {arguments.special}));
}

}  // namespace

void add_tokenizer_command(CLI::App& app, const GlobalOptions&) {
  auto* command = app.add_subcommand("tokenizer", "Train and use tokenizers");
  command->require_subcommand(1);
  auto arguments = std::make_shared<TokenizerArguments>();
  auto* train = command->add_subcommand("train", "Train a tokenizer on text files (also .gz)");
  train->add_option("files", arguments->files, "Text files")->required()->check(path_name());
  train->add_option("--vocab-size", arguments->vocab_size, "Number of pieces, 256 bytes among them")
      ->capture_default_str()
      ->check(whole_number(1));
  train->add_option("--kind", arguments->kind, "bpe, or byte (one id a byte; nothing to train)")
      ->capture_default_str()
      ->check(CLI::IsMember({"bpe", "byte"}));
  train->add_option("--output", arguments->output, "Folder for tokenizer.model")
      ->required()
      ->check(path_name());
  train->footer(
      "Example:\n  build/dcformer tokenizer train data/austen.txt.gz --vocab-size 2048 --output "
      "tokenizers/austen");
  train->callback([arguments] { train_tokenizer(*arguments); });
  for (const bool encodes : {true, false}) {
    auto* use = encodes ? command->add_subcommand("encode", "Text to ids, separated by blanks")
                        : command->add_subcommand("decode", "Ids to text");
    use->add_option("model", arguments->model,
                    "A folder with a tokenizer, a tokenizer.json, or a tokenizer.model")
        ->required()
        ->check(path_name());
    use->add_option("file", arguments->input,
                    encodes ? "One document, byte for byte (default: standard input)"
                            : "Ids, separated by blanks (default: standard input)")
        ->check(path_name());
    use->add_flag("--special", arguments->special,
                  encodes ? "Add the special tokens that the tokenizer puts around a text"
                          : "Write special tokens by their names (default: leave them out)");
    if (encodes)
      use->add_flag("--plain", arguments->plain,
                    "Take special tokens that are written in the text as plain text");
    use->footer(encodes
                    ? "Example:\n  echo -n 'Hello' | build/dcformer tokenizer encode runs/first"
                    : "Example:\n  echo -n 'Hello' | build/dcformer tokenizer encode runs/first |\n"
                      "    build/dcformer tokenizer decode runs/first");
    use->callback([arguments, encodes] { encodes ? encode(*arguments) : decode(*arguments); });
  }
  command->footer("Example:\n  build/dcformer tokenizer encode runs/first README.md");
}

}  // namespace dcformer
