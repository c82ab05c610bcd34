#include "dcformer/text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/utf8.h"
#include "dcformer/text/sentencepiece_check.h"

namespace dcformer {
namespace {

// U+2581, which the library writes for a blank.
constexpr std::string_view kBlank = "\xE2\x96\x81";
// The library's cost grows with the length of one text, so long ones are cut: behind a line break
// once they have this length, anywhere between characters at the larger one.
constexpr size_t kSoftCut = 4096;
constexpr size_t kHardCut = 65536;
constexpr size_t kTrainingBytes = size_t{8} << 20;
constexpr size_t kMaxLine = 4000;

std::string with_blanks(std::string_view piece) {
  std::string bytes;
  for (size_t i = 0; i < piece.size();) {
    const bool blank = piece.substr(i, kBlank.size()) == kBlank;
    bytes += blank ? ' ' : piece[i];
    i += blank ? kBlank.size() : 1;
  }
  return bytes;
}

/// The pieces of texts that the trainer sees: lines without their breaks, long ones cut between
/// characters.
class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& texts) {
    size_t total = 0;
    for (const std::string& text : texts) total += text.size();
    const size_t keep_one_in = std::max<size_t>(1, (total + kTrainingBytes - 1) / kTrainingBytes);
    size_t n = 0;
    for (const std::string& text : texts)
      for (size_t begin = 0; begin < text.size();) {
        const size_t found = text.find('\n', begin);
        const size_t end = found == std::string::npos ? text.size() : found;
        if (end > begin && n++ % keep_one_in == 0)
          add(std::string_view(text).substr(begin, end - begin));
        begin = end + 1;
      }
  }

  bool done() const override { return next_ >= lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }
  bool empty() const { return lines_.empty(); }

 private:
  void add(std::string_view line) {
    while (!line.empty()) {
      size_t n = std::min(line.size(), kMaxLine);
      while (n < line.size() && n > 1 && (static_cast<unsigned char>(line[n]) & 0xC0) == 0x80) --n;
      lines_.emplace_back(line.substr(0, n));
      line.remove_prefix(n);
    }
  }

  std::vector<std::string> lines_;
  size_t next_ = 0;
};

// The library's message, "SOURCE(LINE) [CONDITION] TEXT", in our words.
std::string training_fault(const std::string& message, int64_t vocab_size) {
  if (message.find("Vocabulary size too high") != std::string::npos) {
    const std::string bound = "<= ";
    const size_t found = message.find(bound);
    const std::string most =
        found == std::string::npos
            ? ""
            : fmt::format(" of at most {}", std::stoll(message.substr(found + bound.size())));
    return fmt::format(
        "tokenizer: the text is too small for {} pieces; take more text, or a vocabulary{} "
        "(--vocab-size, or bpe:N in a run file)",
        vocab_size, most);
  }
  const size_t end = message.rfind("] ");
  return "tokenizer: training failed: " +
         (end == std::string::npos ? message : message.substr(end + 2));
}

// The length of the next part of clean text to encode in one call.
size_t cut_length(std::string_view text) {
  if (text.size() <= kSoftCut) return text.size();
  const size_t line = text.substr(0, kHardCut).find('\n', kSoftCut - 1);
  if (line != std::string_view::npos) return line + 1;
  if (text.size() <= kHardCut) return text.size();
  size_t n = kHardCut;
  while ((static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return n;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& where)
    : model_(std::move(model)),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  check_sentencepiece_model(model_, where);
  const auto status = processor_->LoadFromSerializedProto(model_);
  require(status.ok(), "{}: not a SentencePiece model: {}", where, status.message());
  const int n = processor_->GetPieceSize();
  byte_ids_.assign(256, -1);
  for (int id = 0; id < n; ++id) {
    const std::string& piece = processor_->IdToPiece(id);
    if (processor_->IsByte(id)) {
      const bool well_formed = piece.size() == 6 && piece.substr(0, 3) == "<0x" &&
                               piece.find_first_not_of("0123456789ABCDEF", 3) == 5 &&
                               piece[5] == '>';
      require(well_formed, "{}: byte piece {} is '{}', expected the form <0x41>", where, id, piece);
      const int byte = std::stoi(piece.substr(3, 2), nullptr, 16);
      byte_ids_[static_cast<size_t>(byte)] = id;
      pieces_.emplace_back(1, static_cast<char>(byte));
    } else {
      const bool special = processor_->IsControl(id) || processor_->IsUnknown(id);
      pieces_.push_back(special ? std::string() : with_blanks(piece));
    }
  }
  require(std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end(),
          "{}: the model lacks byte pieces, expected one for each of the 256 bytes", where);
  std::vector<int> probe;
  require(processor_->Encode("a", &probe).ok() && decode(probe) == "a",
          "{}: the model puts a blank before the text (dummy prefix), which is not supported yet",
          where);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::unique_ptr<SentencePieceTokenizer> SentencePieceTokenizer::train(
    const std::vector<std::string>& texts, int64_t vocab_size) {
  require(vocab_size >= 300 && vocab_size <= 1 << 20,
          "tokenizer: vocabulary size is {}, expected 300 to {} (256 of them are bytes)",
          vocab_size, 1 << 20);
  Lines lines(texts);
  require(!lines.empty(), "tokenizer: the training text is empty");
  const std::unordered_map<std::string, std::string> options = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocab_size)},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"character_coverage", "0.9999"},
      {"user_defined_symbols", "\n"},
      {"num_threads", "1"},
      {"minloglevel", "3"}};
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &lines, &model);
  require(status.ok(), "{}", training_fault(status.message(), vocab_size));
  return std::make_unique<SentencePieceTokenizer>(std::move(model), "the trained model");
}

int32_t SentencePieceTokenizer::end_of_document() const { return processor_->eos_id(); }

void SentencePieceTokenizer::encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const {
  for (const char c : bytes) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
}

void SentencePieceTokenizer::encode_clean(std::string_view text, std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, cut_length(text));
    std::vector<int> part_ids;
    const bool ok = processor_->Encode({part.data(), part.size()}, &part_ids).ok();
    // Whatever the library does to a text that we did not foresee, the bytes come back.
    if (ok && decode(part_ids) == part) {
      ids.insert(ids.end(), part_ids.begin(), part_ids.end());
    } else {
      encode_bytes(part, ids);
    }
    text.remove_prefix(part.size());
  }
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view bytes) const {
  std::vector<int32_t> ids;
  size_t clean = 0;
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Step step = utf8_front(bytes.substr(i, 4));
    const std::string_view part = bytes.substr(i, step.length);
    const bool unsafe = step.front != Utf8Front::character || part == kBlank || part[0] == '\0';
    i += step.length;
    if (!unsafe) continue;
    encode_clean(bytes.substr(clean, i - step.length - clean), ids);
    encode_bytes(part, ids);
    clean = i;
  }
  encode_clean(bytes.substr(clean), ids);
  return ids;
}

void SentencePieceTokenizer::save(const std::string& folder) const {
  replace_file(folder + "/tokenizer.model", model_);
}

}  // namespace dcformer
