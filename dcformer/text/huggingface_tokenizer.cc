#include "dcformer/text/huggingface_tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/base/utf8.h"
#include "dcformer/text/characters.h"

namespace dcformer {
namespace {

// The vocabulary's tokens and the added ones, of which many are in it.
TokenTable all_tokens(const TokenizerParts& parts) {
  std::unordered_map<std::string_view, const AddedToken*> added;
  for (const AddedToken& token : parts.added_tokens)
    require(added.emplace(token.content, &token).second, "{}: added token {} occurs twice",
            parts.where, in_quotes(token.content));
  std::vector<TokenTable::Token> tokens;
  tokens.reserve(parts.bpe.vocab.size() + added.size());
  for (const VocabEntry& entry : parts.bpe.vocab) {
    const auto found = added.find(entry.text);
    if (found == added.end()) {
      tokens.push_back({entry.id, entry.text, false, false});
      continue;
    }
    require(found->second->id == entry.id,
            "{}: added token {} has id {}, but the vocabulary gives it {}", parts.where,
            in_quotes(entry.text), found->second->id, entry.id);
  }
  for (const AddedToken& token : parts.added_tokens)
    tokens.push_back({token.id, token.content, token.special, true});
  return {std::move(tokens), parts.where};
}

// A piece that spells a special token must not become it.
BpeParts without_special(BpeParts bpe, const std::vector<AddedToken>& added) {
  if (!bpe.ignore_merges) return bpe;
  std::unordered_set<std::string_view> special;
  for (const AddedToken& token : added)
    if (token.special && token.content != bpe.unk_token) special.insert(token.content);
  std::erase_if(bpe.vocab, [&](const VocabEntry& entry) { return special.contains(entry.text); });
  return bpe;
}

AddedTokenFinder finder(const TokenizerParts& parts, bool normalized) {
  std::vector<AddedToken> tokens;
  PatternMemory memory;
  std::string buffer;
  for (AddedToken token : parts.added_tokens) {
    if (token.normalized != normalized) continue;
    if (normalized)
      token.content = std::string(parts.normalizer.apply(token.content, buffer, memory));
    tokens.push_back(std::move(token));
  }
  return AddedTokenFinder(std::move(tokens));
}

}  // namespace

struct HuggingFaceTokenizer::Memory {
  PreTokenizerMemory cutting;
  BpeMemory bpe;
  std::string normalized;
  std::vector<AddedTokenFinder::Part> plain_parts;
  std::vector<AddedTokenFinder::Part> normalized_parts;
};

/// Memory for one call, given back at its end.
class HuggingFaceTokenizer::MemoryLease {
 public:
  explicit MemoryLease(const HuggingFaceTokenizer& tokenizer) : tokenizer_(tokenizer) {
    {
      std::lock_guard lock(tokenizer.memories_mutex_);
      if (!tokenizer.memories_.empty()) {
        memory_ = std::move(tokenizer.memories_.back());
        tokenizer.memories_.pop_back();
      }
    }
    if (memory_ == nullptr) memory_ = std::make_unique<Memory>();
  }
  ~MemoryLease() {
    std::lock_guard lock(tokenizer_.memories_mutex_);
    tokenizer_.memories_.push_back(std::move(memory_));
  }
  MemoryLease(const MemoryLease&) = delete;
  MemoryLease& operator=(const MemoryLease&) = delete;

  Memory& operator*() { return *memory_; }

 private:
  const HuggingFaceTokenizer& tokenizer_;
  std::unique_ptr<Memory> memory_;
};

HuggingFaceTokenizer::HuggingFaceTokenizer(TokenizerParts parts,
                                           std::map<std::string, std::string> files)
    : model_(without_special(parts.bpe, parts.added_tokens), parts.where + ": model"),
      plain_tokens_(finder(parts, false)),
      normalized_tokens_(finder(parts, true)),
      decoder_(all_tokens(parts), std::move(parts.decoder), parts.where),
      normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      prefix_(std::move(parts.prefix)),
      suffix_(std::move(parts.suffix)),
      end_of_document_(parts.end_of_document),
      files_(std::move(files)) {
  const auto check = [&](int32_t id, const char* what) {
    require(decoder_.tokens().find(id) != nullptr, "{}: {} is id {}, which no token has",
            parts.where, what, id);
  };
  for (const int32_t id : prefix_) check(id, "what the post-processor puts before a text");
  for (const int32_t id : suffix_) check(id, "what the post-processor puts behind a text");
  if (end_of_document_ < 0) return;
  check(end_of_document_, "what ends a document");
  require(decoder_.tokens().find(end_of_document_)->special,
          "{}: what ends a document is id {}, which is not special", parts.where, end_of_document_);
}

HuggingFaceTokenizer::~HuggingFaceTokenizer() = default;

std::vector<int32_t> HuggingFaceTokenizer::encode(std::string_view bytes) const {
  return encode_with(bytes, {});
}

std::vector<int32_t> HuggingFaceTokenizer::encode_with(std::string_view bytes,
                                                       const EncodeOptions& options) const {
  // English has some four bytes a token.
  constexpr size_t kBytesPerId = 4;
  std::vector<int32_t> ids;
  ids.reserve(bytes.size() / kBytesPerId + 16);
  MemoryLease lease(*this);
  Memory& memory = *lease;
  if (options.add_special) ids = prefix_;
  plain_tokens_.find(bytes, options.recognise_special, memory.plain_parts);
  for (const AddedTokenFinder::Part& part : memory.plain_parts) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
    } else {
      encode_text(part.text, part.text.data() == bytes.data(), options, memory, ids);
    }
  }
  if (options.add_special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

namespace {

/// Encodes each piece as it is cut.
class Encoder : public PieceSink {
 public:
  Encoder(const BpeModel& model, BpeMemory& memory, std::vector<int32_t>& ids)
      : model_(model), memory_(memory), ids_(ids) {}
  void piece(std::string_view bytes) override { model_.encode(bytes, memory_, ids_); }

 private:
  const BpeModel& model_;
  BpeMemory& memory_;
  std::vector<int32_t>& ids_;
};

}  // namespace

void HuggingFaceTokenizer::encode_text(std::string_view text, bool at_beginning,
                                       const EncodeOptions& options, Memory& memory,
                                       std::vector<int32_t>& ids) const {
  const std::string_view normalized =
      normalizer_.apply(text, memory.normalized, memory.cutting.patterns);
  Encoder encoder(model_, memory.bpe, ids);
  normalized_tokens_.find(normalized, options.recognise_special, memory.normalized_parts);
  for (const AddedTokenFinder::Part& part : memory.normalized_parts) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
    } else {
      const bool first = at_beginning && part.text.data() == normalized.data();
      pre_tokenizer_.cut(part.text, first, memory.cutting, encoder);
    }
  }
}

std::string_view HuggingFaceTokenizer::token_bytes(int32_t id) const {
  const TokenTable::Token* token = decoder_.tokens().find(id);
  return token == nullptr || token->special ? std::string_view() : std::string_view(token->text);
}

std::unique_ptr<TextStream> HuggingFaceTokenizer::text_stream(const DecodeOptions& options) const {
  return decoder_.stream(options);
}

void HuggingFaceTokenizer::save(const std::string& folder) const {
  for (const auto& [name, bytes] : files_) replace_file(folder + "/" + name, bytes);
}

}  // namespace dcformer
