#include "dcformer/text/stream_decoder.h"

#include <utility>

#include "dcformer/base/utf8.h"

namespace dcformer {

std::string StreamDecoder::push(int32_t id) {
  tokenizer_.require_id(id, n_pushed_++);
  text_->push(id, pending_);
  size_t whole = 0;
  while (whole < pending_.size()) {
    const Utf8Step step = utf8_front(std::string_view(pending_).substr(whole, 4));
    if (step.front == Utf8Front::cut_short) break;
    whole += step.length;
  }
  std::string ready = pending_.substr(0, whole);
  pending_.erase(0, whole);
  return ready;
}

std::string StreamDecoder::finish() {
  text_->finish(pending_);
  n_pushed_ = 0;
  return std::exchange(pending_, {});
}

}  // namespace dcformer
