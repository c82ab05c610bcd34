#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dcformer/model/config.h"
#include "dcformer/ops/composed_attention.h"

namespace dcformer {

/// The cached keys, values and key-side composition weights of one sequence, in pages of 32 tokens
/// for each layer. A window layer gives back the pages that have left its window.
class SequenceCache {
 public:
  /// Pages hold `dtype` (the compute type of the model).
  SequenceCache(const ModelConfig& config, DType dtype);

  /// Tokens that all layers have seen.
  int64_t length() const { return length_; }
  const PageLayout& layout() const { return layout_; }

  /// Makes room in a layer for `count` tokens after `length()`, and returns the layer's page table;
  /// entries of pages that were given back are null.
  std::span<void* const> reserve(Context& context, int64_t layer, int64_t count);
  /// The tokens are in: moves `length()` on, once all layers have written them.
  void advance(int64_t count);

  /// Bytes of pages held now.
  size_t bytes() const;

 private:
  struct Layer {
    int64_t window = 0;
    std::vector<std::shared_ptr<std::byte>> memory;
    std::vector<void*> pages;
  };

  PageLayout layout_;
  std::vector<Layer> layers_;
  int64_t length_ = 0;
};

}  // namespace dcformer
