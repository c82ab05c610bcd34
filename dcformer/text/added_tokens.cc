#include "dcformer/text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "dcformer/base/check.h"
#include "dcformer/text/characters.h"

namespace dcformer {
namespace {

// A search walks down from every place of the text: this bounds its cost.
constexpr size_t kMaxContent = 1024;

unsigned char index_of(char byte) { return static_cast<unsigned char>(byte); }

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  return !ends_with_word(text.substr(0, begin)) && !starts_with_word(text.substr(end));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  roots_.fill(-1);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    require(content.size() <= kMaxContent, "added token {} has {} bytes, expected at most {}",
            in_quotes(content), content.size(), kMaxContent);
    if (!content.empty()) insert(content, static_cast<int32_t>(i));
  }
  const auto is_start = [](int32_t node) { return node >= 0; };
  if (std::count_if(roots_.begin(), roots_.end(), is_start) == 1)
    only_start_ =
        static_cast<int>(std::find_if(roots_.begin(), roots_.end(), is_start) - roots_.begin());
}

int32_t AddedTokenFinder::child(int32_t node, char byte) const {
  if (node == 0) return roots_[index_of(byte)];
  int32_t next = nodes_[static_cast<size_t>(node)].first_child;
  while (next >= 0 && nodes_[static_cast<size_t>(next)].byte != byte)
    next = nodes_[static_cast<size_t>(next)].next_sibling;
  return next;
}

void AddedTokenFinder::insert(const std::string& content, int32_t token) {
  int32_t node = 0;
  for (const char byte : content) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      Node& parent = nodes_[static_cast<size_t>(node)];
      const Node made{-1, -1, parent.first_child, byte};
      parent.first_child = next;
      if (node == 0) roots_[index_of(byte)] = next;
      nodes_.push_back(made);
    }
    node = next;
  }
  // Of two that the normalizer makes the same, the first is found.
  int32_t& here = nodes_[static_cast<size_t>(node)].token;
  if (here < 0) here = token;
}

size_t AddedTokenFinder::next_start(std::string_view text, size_t from) const {
  if (only_start_ >= 0) {
    const void* found = std::memchr(text.data() + from, only_start_, text.size() - from);
    return found == nullptr ? text.size()
                            : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  }
  while (from < text.size() && roots_[index_of(text[from])] < 0) ++from;
  return from;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t begin) const {
  const AddedToken* longest = nullptr;
  int32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node < 0) break;
    const int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token >= 0) longest = &tokens_[static_cast<size_t>(token)];
  }
  return longest;
}

// As the reference library does it, a match that does not count (single_word, special) is passed
// over as a whole.
void AddedTokenFinder::find(std::string_view text, bool special, std::vector<Part>& parts) const {
  parts.clear();
  size_t done = 0;
  // The white space last stripped: many tokens may stand in it.
  size_t white_begin = 1;
  size_t white_end = 0;
  const auto add_text = [&](size_t end) {
    if (done < end) parts.push_back({text.substr(done, end - done), nullptr});
  };
  for (size_t at = next_start(text, 0); at < text.size(); at = next_start(text, at)) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;
    if (token->special && !special) continue;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->rstrip) {
      if (end < white_begin || end > white_end) {
        white_begin = end;
        white_end = end + leading_white_space(text.substr(end));
      }
      end = white_end;
    }
    if (token->lstrip)
      begin = begin <= done ? done : begin - trailing_white_space(text.substr(done, begin - done));
    add_text(begin);
    if (begin < end) parts.push_back({text.substr(begin, end - begin), token});
    done = end;
  }
  add_text(text.size());
}

}  // namespace dcformer
