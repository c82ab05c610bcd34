#pragma once

#include <span>
#include <vector>

#include "dcformer/ops/composed_attention.h"
#include "dcformer/ops/composed_attention_tiles.h"
#include "dcformer/tensor/tensor.h"

/// The keys' side of composed attention as its kernels read it, in panels of 32 keys.
namespace dcformer::attention {

/// Where each sequence's pages begin among those of all.
class PageIndex {
 public:
  explicit PageIndex(std::span<const AttentionSequence> sequences);
  int64_t n_page() const { return first_.back(); }
  int64_t first(int64_t sequence) const { return first_[static_cast<size_t>(sequence)]; }
  int64_t count(int64_t sequence) const { return first(sequence + 1) - first(sequence); }

 private:
  std::vector<int64_t> first_{0};
};

/// The layout of a cache page for these inputs; without blocks where there is no key side.
PageLayout page_layout(const AttentionInputs& inputs, DType dtype, int64_t n_kv_head,
                       int64_t head_dim, bool with_blocks);

/// Pages of all sequences, packed f32: keys and values, or (with `k` and `v` of no heads) the
/// key-side blocks alone.
class PackedPages {
 public:
  PackedPages(Context& context, const AttentionInputs& inputs, ConstHeads k, ConstHeads v,
              bool with_blocks);
  const PageLayout& layout() const { return layout_; }
  std::span<const std::span<void* const>> pages() const { return spans_; }

 private:
  PageLayout layout_;
  Tensor memory_;
  std::vector<void*> pages_;
  std::vector<std::span<void* const>> spans_;
};

/// The panels of one sequence, typed.
template <typename T>
struct Panels {
  const PageLayout* layout = nullptr;
  std::span<void* const> pages;

  const T* page(int64_t panel) const {
    return static_cast<const T*>(pages[static_cast<size_t>(panel)]);
  }
  const T* keys(int64_t panel, int64_t kv_head) const {
    return page(panel) + kv_head * layout->head_dim * kPanel;
  }
  const T* values(int64_t panel, int64_t kv_head) const {
    return page(panel) + layout->value_offset() + kv_head * layout->value_width() * kPanel;
  }
  /// Null where there is no key side.
  const T* block(int64_t panel, int64_t group, int64_t stage) const {
    if (layout->block == 0) return nullptr;
    return page(panel) + layout->block_offset() + (group * 2 + stage) * layout->block * kPanel;
  }
};

/// Heads of all sequences in bf16 as the second operand of tile products (BFloat16 pairs along the
/// summed axis, in tiles of 16 pairs by 16 columns):
/// by depth for products that sum over head_dim: [D''/32][2 halves][16 pairs of d][16 keys][2];
/// by key for products that sum over keys: [D'/16][16 pairs of keys][16 of d][2];
/// D' and D'' are D rounded up to 16 and 32, zeros beyond D and beyond the sequence.
class TilePages {
 public:
  enum class Sum { over_depth, over_keys };
  TilePages(Context& context, const AttentionInputs& inputs, const PageIndex& index,
            ConstHeads heads, Sum sum);
  const BFloat16* at(int64_t page, int64_t kv_head) const {
    return data_ + page * page_numel_ + kv_head * head_numel_;
  }
  /// Elements from a page to the next.
  int64_t page_numel() const { return page_numel_; }

 private:
  int64_t head_numel_, page_numel_;
  Tensor memory_;
  BFloat16* data_;
};

}  // namespace dcformer::attention
