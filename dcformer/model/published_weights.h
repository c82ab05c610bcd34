#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dcformer/io/tensor_source.h"
#include "dcformer/model/parameters.h"

namespace dcformer {

/// Which of the two forms of the composition's weights counts where a file holds both: the
/// originals (`dw1`, `dd`, `qkw`), or the merged copies that the published code computes with
/// (`dw_m`: dw1 and dd side by side, `qkw_m`).
enum class CompositionWeights : uint8_t { automatic, original, merged };

/// "auto", "original" or "merged". Throws Error for another text.
CompositionWeights parse_composition_weights(std::string_view text);

/// The tensors of a published file as the parameters of a configuration (docs/design.md, section
/// 6). Buffers of the published code are dropped: base projections that the configuration has not,
/// scratch and caches. `wq`, `wk` and `wv` in separate tensors are joined to `wqkv`.
///
/// Of merged copies beside originals, `automatic` takes those that were trained: official training
/// updates the copies and leaves the originals as they were drawn, the official converter writes
/// right originals beside a random `dw_m`. On a sample of rows, the correlation of both is above
/// 0.9 after training and about 0 for a random copy; above 0.3 the copies are taken, `qkw_m` too.
class PublishedWeights {
 public:
  /// Throws Error, naming the tensors, for what is missing or mis-shaped, or of a type that is no
  /// floating point.
  PublishedWeights(const TensorSource& source, const ModelConfig& config,
                   const std::vector<ParameterSpec>& specs, CompositionWeights choice);

  /// The values of a parameter: over the mapping, which they keep alive, where the file has them as
  /// one contiguous tensor of f32, bf16 or f16; else assembled in f32, or in bf16 where all parts
  /// are that.
  Tensor value(Context& context, const ParameterSpec& spec) const;

  /// What a user should hear of though it is no error, one sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// True where the merged copies are taken.
  bool takes_merged() const { return merged_; }

 private:
  struct Part;

  std::vector<Part> parts_of(const ParameterSpec& spec) const;
  void choose(CompositionWeights choice);
  void check(const std::vector<ParameterSpec>& specs);
  void name_unused(const std::vector<ParameterSpec>& specs);

  const TensorSource& source_;
  const ModelConfig& config_;
  bool merged_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace dcformer
