#include "dcformer/train/prepare_data.h"

#include <spdlog/spdlog.h>

#include <charconv>

#include "dcformer/base/check.h"
#include "dcformer/base/hash.h"
#include "dcformer/data/corpus.h"
#include "dcformer/text/byte_tokenizer.h"
#include "dcformer/text/sentencepiece_tokenizer.h"

namespace dcformer {
namespace {

constexpr const char* kTrainPrefix = "bpe:";

std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name,
                                                const std::vector<std::string>& texts) {
  if (name == "byte") return std::make_shared<ByteTokenizer>();
  if (!name.starts_with(kTrainPrefix)) return load_tokenizer(name);
  const std::string digits = name.substr(std::string(kTrainPrefix).size());
  int64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  require(error == std::errc() && end == digits.data() + digits.size(),
          "data.tokenizer: '{}', expected byte, bpe:N or a tokenizer's path", name);
  spdlog::info("training a tokenizer of {} pieces", size);
  return SentencePieceTokenizer::train(texts, size);
}

}  // namespace

std::string TrainingData::hash() const {
  return xxh3_128(training.hash() + (validation ? validation->hash() : ""));
}

TrainingData prepare_data(Context& context, const DataConfig& config,
                          const std::optional<std::string>& checkpoint) {
  TrainingData data;
  if (!config.rows.empty()) {
    data.training = RowSet::read(config.rows);
    if (config.validation_rows.empty())
      spdlog::info("no validation: the run has no data.validation_rows");
    else
      data.validation = RowSet::read(config.validation_rows);
    return data;
  }
  const TextSplit split = read_text_split(config.text);
  data.tokenizer =
      checkpoint ? load_tokenizer(*checkpoint) : make_tokenizer(config.tokenizer, split.training);
  TokenStream training = tokenize(context, *data.tokenizer, split.training);
  TokenStream validation = tokenize(context, *data.tokenizer, split.validation);
  spdlog::info("text: {} training tokens of {} bytes, {} validation tokens of {} bytes",
               training.ids.size(), training.bytes, validation.ids.size(), validation.bytes);
  data.training = RowSet::cut(std::move(training.ids), config.sequence_length, false, "data.text");
  if (data.training.n_left_out() > 0)
    spdlog::info("the last {} training tokens fill no row and are left out",
                 data.training.n_left_out());
  if (validation.ids.size() >= 2) {
    data.validation_bytes = validation.bytes;
    data.validation =
        RowSet::cut(std::move(validation.ids), config.sequence_length, true, "data.text");
  } else {
    spdlog::info("no validation: no text follows the first line break past 95 % of a file");
  }
  return data;
}

}  // namespace dcformer
