#include "dcformer/text/token_table.h"

#include <algorithm>

#include "dcformer/base/check.h"
#include "dcformer/text/characters.h"

namespace dcformer {

TokenTable::TokenTable(std::vector<Token> tokens, const std::string& where)
    : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const Token& a, const Token& b) { return a.id < b.id; });
  for (size_t i = 1; i < tokens_.size(); ++i)
    require(tokens_[i].id != tokens_[i - 1].id, "{}: id {} is that of {} and of {}", where,
            tokens_[i].id, in_quotes(tokens_[i - 1].text), in_quotes(tokens_[i].text));
}

const TokenTable::Token* TokenTable::find(int32_t id) const {
  if (id < 0) return nullptr;
  // Without holes, as in most vocabularies, an id is its place.
  const auto place = static_cast<size_t>(id);
  if (place < tokens_.size() && tokens_[place].id == id) return &tokens_[place];
  const auto found = std::lower_bound(tokens_.begin(), tokens_.end(), id,
                                      [](const Token& token, int32_t n) { return token.id < n; });
  return found == tokens_.end() || found->id != id ? nullptr : &*found;
}

int64_t TokenTable::vocab_size() const {
  return tokens_.empty() ? 0 : int64_t{tokens_.back().id} + 1;
}

}  // namespace dcformer
