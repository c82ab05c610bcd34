#include "dcformer/ops/composed_attention_pages.h"

#include <algorithm>
#include <array>

#include "dcformer/base/check.h"
#include "dcformer/base/parallel.h"

namespace dcformer {
namespace {

template <typename From, typename To>
void write_token(const PageLayout& layout, To* page, int64_t slot, const HeadView<const From>& k,
                 const HeadView<const From>& v, const Composition& c, int64_t token) {
  for (int64_t h = 0; h < layout.n_kv_head; ++h) {
    const From* key = k.at(token, h);
    To* keys = page + h * layout.head_dim * kPanel + slot;
    for (int64_t d = 0; d < layout.head_dim; ++d) keys[d * kPanel] = To(static_cast<float>(key[d]));
    const From* value = v.at(token, h);
    To* values = page + layout.value_offset() + (h * kPanel + slot) * layout.value_width();
    for (int64_t d = 0; d < layout.head_dim; ++d) values[d] = To(static_cast<float>(value[d]));
    for (int64_t d = layout.head_dim; d < layout.value_width(); ++d) values[d] = To(0.0f);
  }
  if (layout.block == 0) return;
  const int64_t gate = layout.block / (2 * c.rank + 1) * 2 * c.rank;
  for (int64_t g = 0; g < layout.n_group; ++g)
    for (int64_t stage = 0; stage < 2; ++stage) {
      const float* from = c.key.at(token, g, stage);
      To* to = page + layout.block_offset() + (g * 2 + stage) * layout.block * kPanel + slot;
      for (int64_t i = 0; i < layout.block; ++i)
        to[i * kPanel] = To(i < gate || c.gates ? from[i] : 0.0f);
    }
}

}  // namespace

void write_pages(const PageLayout& layout, std::span<void* const> pages, int64_t position,
                 ConstHeads k, ConstHeads v, const Composition& composition, int64_t begin,
                 int64_t count) {
  visit_dtype(k.dtype, "write_pages", [&](auto from_type) {
    using From = decltype(from_type);
    const auto keys = k.typed<From>();
    const auto values = v.typed<From>();
    visit_dtype(layout.dtype, "write_pages", [&](auto to_type) {
      using To = decltype(to_type);
      for (int64_t i = 0; i < count; ++i) {
        To* page = static_cast<To*>(pages[static_cast<size_t>((position + i) / kPanel)]);
        write_token<From, To>(layout, page, (position + i) % kPanel, keys, values, composition,
                              begin + i);
      }
    });
  });
}

namespace attention {
namespace {

// Elements from a page to the next. A head's panels lie one stride apart: where that is a multiple
// of the size of a cache way, all of them would compete for the same few lines.
int64_t page_stride(const PageLayout& layout) {
  constexpr int64_t kWay = 32768;
  if (layout.numel() < 4 * kWay) return layout.numel();
  const int64_t panel = layout.head_dim * kPanel;
  return layout.numel() + ((panel - layout.numel()) % kWay + kWay) % kWay;
}

// The keys of a page as rows of head_dim elements; zeros stand for those past the sequence.
using KeyRows = std::array<const BFloat16*, kPanel>;

void write_by_depth(const KeyRows& rows, int64_t head_dim, BFloat16* to) {
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t d = 0; d < head_dim; d += 2) {
      BFloat16* pairs = to + (d / 32 * 2 + half) * 512 + d % 32 / 2 * 32;
      for (int64_t j = 0; j < kSide; ++j) {
        const BFloat16* from = rows[static_cast<size_t>(half * kSide + j)] + d;
        pairs[2 * j] = from[0];
        pairs[2 * j + 1] = d + 1 < head_dim ? from[1] : BFloat16(0.0f);
      }
    }
}

void write_by_key(const KeyRows& rows, int64_t head_dim, BFloat16* to) {
  for (int64_t j = 0; j < kPanel; j += 2)
    for (int64_t first = 0; first < head_dim; first += kSide) {
      BFloat16* pairs = to + first / kSide * 512 + j / 2 * 32;
      const BFloat16* even = rows[static_cast<size_t>(j)] + first;
      const BFloat16* odd = rows[static_cast<size_t>(j + 1)] + first;
      const int64_t count = std::min(kSide, head_dim - first);
      for (int64_t d = 0; d < count; ++d) {
        pairs[2 * d] = even[d];
        pairs[2 * d + 1] = odd[d];
      }
    }
}

}  // namespace

PageIndex::PageIndex(std::span<const AttentionSequence> sequences) {
  for (const AttentionSequence& s : sequences)
    first_.push_back(first_.back() + (s.n_key + kPanel - 1) / kPanel);
}

PageLayout page_layout(const AttentionInputs& in, DType dtype, int64_t n_kv_head, int64_t head_dim,
                       bool with_blocks) {
  const Composition& c = in.composition;
  const bool key_side = with_blocks && c.key.data != nullptr;
  return {dtype, n_kv_head, head_dim, c.n_group,
          key_side ? (2 * c.rank + 1) * (in.q.n_head / c.n_group) : 0};
}

PackedPages::PackedPages(Context& context, const AttentionInputs& in, ConstHeads k, ConstHeads v,
                         bool with_blocks)
    : layout_(page_layout(in, DType::f32, k.n_head, k.head_dim, with_blocks)) {
  const PageIndex index(in.sequences);
  const int64_t stride = page_stride(layout_);
  memory_ = Tensor::empty(context, DType::f32, {std::max<int64_t>(index.n_page(), 1), stride});
  float* data = memory_.data<float>();
  for (int64_t p = 0; p < index.n_page(); ++p) pages_.push_back(data + p * stride);
  for (size_t s = 0; s < in.sequences.size(); ++s) {
    const auto number = static_cast<int64_t>(s);
    const std::span<void* const> pages{pages_.data() + index.first(number),
                                       static_cast<size_t>(index.count(number))};
    spans_.push_back(pages);
    parallel_for(context, index.count(number), [&](int64_t p) {
      const AttentionSequence& sequence = in.sequences[s];
      // Unused slots are zero: the backward pass multiplies them with zero gradients.
      if ((p + 1) * kPanel > sequence.n_key)
        std::fill_n(static_cast<float*>(pages[static_cast<size_t>(p)]), layout_.numel(), 0.0f);
      write_pages(layout_, pages, p * kPanel, k, v, in.composition, sequence.key_begin + p * kPanel,
                  std::min(kPanel, sequence.n_key - p * kPanel));
    });
  }
}

TilePages::TilePages(Context& context, const AttentionInputs& in, const PageIndex& index,
                     ConstHeads heads, Sum sum) {
  const int64_t unit = sum == Sum::over_depth ? 32 : kSide;
  head_numel_ = (heads.head_dim + unit - 1) / unit * unit * kPanel;
  // Off powers of two, so that a head's panels do not compete for the same few lines.
  page_numel_ = heads.n_head * head_numel_ + 32;
  memory_ =
      Tensor::empty(context, DType::bf16, {std::max<int64_t>(index.n_page(), 1), page_numel_});
  data_ = memory_.data<BFloat16>();
  const auto view = heads.typed<BFloat16>();
  const std::vector<BFloat16> zeros(static_cast<size_t>(heads.head_dim), BFloat16(0.0f));
  for (size_t s = 0; s < in.sequences.size(); ++s) {
    const AttentionSequence& sequence = in.sequences[s];
    const auto number = static_cast<int64_t>(s);
    parallel_for(context, index.count(number), [&](int64_t p) {
      for (int64_t h = 0; h < heads.n_head; ++h) {
        KeyRows rows;
        for (int64_t j = 0; j < kPanel; ++j) {
          const int64_t key = p * kPanel + j;
          rows[static_cast<size_t>(j)] =
              key < sequence.n_key ? view.at(sequence.key_begin + key, h) : zeros.data();
        }
        BFloat16* to = data_ + (index.first(number) + p) * page_numel_ + h * head_numel_;
        if (heads.head_dim % unit != 0) std::fill_n(to, head_numel_, BFloat16(0.0f));
        if (sum == Sum::over_depth) {
          write_by_depth(rows, heads.head_dim, to);
        } else {
          write_by_key(rows, heads.head_dim, to);
        }
      }
    });
  }
}

}  // namespace attention
}  // namespace dcformer
