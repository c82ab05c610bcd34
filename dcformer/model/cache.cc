#include "dcformer/model/cache.h"

#include <algorithm>

namespace dcformer {

SequenceCache::SequenceCache(const ModelConfig& config, DType dtype) {
  const bool key_side = config.has_dynamic() && config.key_compose;
  layout_ = {dtype, config.n_kv_head, config.head_dim, config.n_group,
             key_side ? config.composition_sizes().block() : 0};
  layers_.resize(static_cast<size_t>(config.n_layer));
  for (int64_t layer = 0; layer < config.n_layer; ++layer)
    layers_[static_cast<size_t>(layer)].window = config.window(layer);
}

std::span<void* const> SequenceCache::reserve(Context& context, int64_t index, int64_t count) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  const size_t needed = static_cast<size_t>((length_ + count + kPanel - 1) / kPanel);
  const size_t bytes = static_cast<size_t>(layout_.numel()) * size_of(layout_.dtype);
  while (layer.pages.size() < needed) {
    layer.memory.push_back(context.allocator().allocate(bytes));
    layer.pages.push_back(layer.memory.back().get());
  }
  return layer.pages;
}

void SequenceCache::advance(int64_t count) {
  length_ += count;
  for (Layer& layer : layers_) {
    if (layer.window == 0) continue;
    // The next query stands at length_ and sees keys from length_ - window + 1 on.
    const int64_t gone = std::max<int64_t>(0, length_ - layer.window + 1) / kPanel;
    for (int64_t p = 0; p < std::min<int64_t>(gone, static_cast<int64_t>(layer.pages.size()));
         ++p) {
      layer.memory[static_cast<size_t>(p)].reset();
      layer.pages[static_cast<size_t>(p)] = nullptr;
    }
  }
}

size_t SequenceCache::bytes() const {
  size_t pages = 0;
  for (const Layer& layer : layers_)
    pages += static_cast<size_t>(std::count_if(layer.pages.begin(), layer.pages.end(),
                                               [](void* page) { return page != nullptr; }));
  return pages * static_cast<size_t>(layout_.numel()) * size_of(layout_.dtype);
}

}  // namespace dcformer
