#include "dcformer/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <utility>

#include "dcformer/base/check.h"
#include "dcformer/base/utf8.h"

namespace dcformer {
namespace {

constexpr size_t kMaxPattern = 32768;
constexpr uint32_t kMatchSteps = 1u << 20;
constexpr uint32_t kMaxDepth = 1u << 20;
constexpr uint32_t kHeapKibibytes = 64 << 10;
constexpr size_t kStackBegin = 32 << 10;
constexpr size_t kStackMost = 1 << 20;

template <typename T, void (*release)(T*)>
struct Release {
  void operator()(T* pointer) const { release(pointer); }
};
template <typename T, void (*release)(T*)>
using Owned = std::unique_ptr<T, Release<T, release>>;

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// Rewrites Oniguruma's regular expressions where PCRE2 reads the same characters in another way.
class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string result() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        inside_class(c);
      } else {
        if (c == '[') open_class();
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  static std::string_view class_of(char c) {
    switch (c) {
      case 's':
        return R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
      case 'w':
        // The last ranges: symbols that count as alphabetic.
        return R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
      case 'h':
        return "0-9A-Fa-f";
      default:
        return {};
    }
  }

  void copy(size_t n) {
    out_ += pattern_.substr(at_, n);
    at_ += n;
  }

  // An upper case letter is the class of all others. PCRE2's own \S and \W stay in classes: they
  // differ in U+180E, and in marks.
  void escape() {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    const std::string_view same = class_of(letter);
    const std::string_view others = class_of(static_cast<char>(letter | 0x20));
    require(!(in_class_ && letter == 'H'), "{}: byte {} of the pattern: \\H within a class", where_,
            at_);
    if (!same.empty()) {
      out_ += in_class_ ? std::string(same) : fmt::format("[{}]", same);
    } else if (!others.empty() && !in_class_) {
      out_ += fmt::format("[^{}]", others);
    } else {
      copy(std::min<size_t>(2, pattern_.size() - at_));
      return;
    }
    at_ += 2;
  }

  // The first character of a class is no end of it.
  void open_class() {
    in_class_ = true;
    size_t first = at_ + 1;
    if (first < pattern_.size() && pattern_[first] == '^') ++first;
    first_in_class_ = first;
  }

  void inside_class(char c) {
    const std::string_view rest = pattern_.substr(at_);
    if (rest.starts_with("[:") && rest.find(":]") != rest.npos) {
      copy(rest.find(":]") + 2);
      return;
    }
    require(c != '[' && !rest.starts_with("&&"),
            "{}: byte {} of the pattern: a set within a class is not supported", where_, at_);
    if (c == ']' && at_ != first_in_class_) in_class_ = false;
    copy(1);
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
  bool in_class_ = false;
  size_t first_in_class_ = 0;
};

}  // namespace

struct Pattern::Compiled {
  std::string where;
  Owned<pcre2_code, pcre2_code_free> code;
  bool is_machine_code = false;
};

Pattern::Pattern(std::string_view pattern, Kind kind, std::string where) {
  require(!pattern.empty() && pattern.size() <= kMaxPattern,
          "{}: a pattern of {} bytes, expected 1 to {}", where, pattern.size(), kMaxPattern);
  const std::string text =
      kind == Kind::regex ? Translation(pattern, where).result() : std::string(pattern);
  const uint32_t options = kind == Kind::regex
                               ? PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C
                               : PCRE2_UTF | PCRE2_LITERAL;
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  auto compiled = std::make_unique<Compiled>();
  compiled->code.reset(
      pcre2_compile(units(text), text.size(), options, &error, &place, context.get()));
  require(compiled->code != nullptr, "{}: not a regular expression that is supported: {}, at '{}'",
          where, message_of(error), shorten_utf8(std::string_view(text).substr(place), 30));
  compiled->is_machine_code = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  compiled->where = std::move(where);
  compiled_ = std::move(compiled);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

struct PatternMemory::Buffers {
  Owned<pcre2_match_data, pcre2_match_data_free> data{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_match_context, pcre2_match_context_free> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack{
      pcre2_jit_stack_create(kStackBegin, kStackMost, nullptr)};
};

PatternMemory::PatternMemory() : buffers_(std::make_unique<Buffers>()) {
  if (buffers_->data == nullptr || buffers_->context == nullptr || buffers_->stack == nullptr)
    throw std::bad_alloc();
  pcre2_set_depth_limit(buffers_->context.get(), kMaxDepth);
  pcre2_set_heap_limit(buffers_->context.get(), kHeapKibibytes);
  pcre2_jit_stack_assign(buffers_->context.get(), nullptr, buffers_->stack.get());
}

PatternMemory::~PatternMemory() = default;

PatternMatches::PatternMatches(const Pattern& pattern, std::string_view text, PatternMemory& memory)
    : pattern_(*pattern.compiled_), text_(text), buffers_(*memory.buffers_) {
  const uint64_t steps = kMatchSteps + 4 * uint64_t{text.size()};
  pcre2_set_match_limit(buffers_.context.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
}

int PatternMatches::search() {
  pcre2_match_data* data = buffers_.data.get();
  pcre2_match_context* context = buffers_.context.get();
  const pcre2_code* code = pattern_.code.get();
  if (pattern_.is_machine_code) {
    const int result = pcre2_jit_match(code, units(text_), text_.size(), from_, 0, data, context);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
  }
  return pcre2_match(code, units(text_), text_.size(), from_, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                     data, context);
}

bool PatternMatches::next(size_t& begin, size_t& end) {
  while (from_ <= text_.size()) {
    const int result = search();
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) fail_search(result);
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(buffers_.data.get());
    // `\K` in an assertion can set the beginning behind the end, or before where the search began.
    begin = std::max(from_, std::min(place[0], place[1]));
    end = std::max(begin, place[1]);
    if (begin == end && end == last_end_) {
      if (from_ == text_.size()) return false;
      from_ += utf8_front(text_.substr(from_, 4)).length;
      continue;
    }
    from_ = last_end_ = end;
    return true;
  }
  return false;
}

void PatternMatches::fail_search(int code) const {
  fail("{}: the pattern cannot be searched for in this text: {}", pattern_.where, message_of(code));
}

}  // namespace dcformer
