#include "dcformer/inspect/model_report.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "dcformer/base/in_bytes.h"
#include "dcformer/io/tensor_folder.h"
#include "dcformer/model/cache.h"
#include "dcformer/model/checkpoint.h"
#include "dcformer/text/tokenizer.h"

namespace dcformer {
namespace {

std::string grouped(int64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string counted(int64_t n, const std::string& what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string architecture(const ModelConfig& c) {
  if (!c.use_dcmha) return "Transformer++ (multi-head attention without composition)";
  std::string parts;
  const auto add = [&](bool on, const char* name) {
    if (!on) return;
    if (!parts.empty()) parts += ", ";
    parts += name;
  };
  add(c.pre_compose, "pre");
  add(c.post_compose, "post");
  add(c.has_dynamic() && c.query_compose, "query-wise");
  add(c.has_dynamic() && c.key_compose, "key-wise");
  add(c.has_dynamic() && c.gates, "gates");
  add(c.has_base(), "base projection");
  return fmt::format("DCFormer++ (composition: {}; rank {}, {})", parts.empty() ? "none" : parts,
                     c.rank, counted(c.n_group, "group"));
}

std::string windows(const ModelConfig& c) {
  std::string text;
  for (const int64_t w : c.windows) {
    if (!text.empty()) text += ", ";
    text += w == 0 ? std::string("global") : std::to_string(w);
  }
  return text;
}

// What the weights' files hold, and what is wrong with them or worth knowing.
std::string stored(const std::string& folder, const ModelConfig& config) {
  try {
    const auto source = open_tensor_folder(folder);
    std::map<std::string_view, double> bytes;
    double total = 0;
    for (const StoredTensor& tensor : source->tensors()) {
      const auto size = static_cast<double>(stored_bytes(tensor));
      bytes[name_of(tensor.dtype)] += size;
      total += size;
    }
    std::string types;
    for (const auto& [type, size] : bytes)
      types += fmt::format("{}{} {}", types.empty() ? "" : ", ", in_bytes(size), type);
    std::string out = fmt::format("  stored         {}, {} ({})\n",
                                  counted(static_cast<int64_t>(source->tensors().size()), "tensor"),
                                  in_bytes(total), types);
    const PublishedWeights weights(*source, config, parameter_specs(config),
                                   CompositionWeights::automatic);
    for (const std::string& warning : weights.warnings())
      out += fmt::format("  warning        {}\n", warning);
    return out;
  } catch (const Error& error) {
    return fmt::format("  warning        {}\n", error.what());
  }
}

}  // namespace

std::string model_report(const std::string& folder) {
  const ModelConfig c = read_model_config(folder);
  std::map<std::string, int64_t> groups;
  int64_t total = 0;
  for (const ParameterSpec& spec : parameter_specs(c)) {
    groups[spec.group] += spec.shape.numel();
    total += spec.shape.numel();
  }
  std::string out = fmt::format("{}\n", folder);
  out += fmt::format("  architecture   {}\n", architecture(c));
  out +=
      fmt::format("  width {}, {}, {} of {} ({}), MLP {}{}\n", c.dim, counted(c.n_layer, "layer"),
                  counted(c.n_head, "head"), c.head_dim, counted(c.n_kv_head, "key/value head"),
                  c.intermediate_size, c.mgate ? ", mgate" : "");
  out += fmt::format("  windows        {} (repeating)\n", windows(c));
  out += fmt::format("  context        {} tokens, vocabulary {}\n", c.block_size, c.vocab_size);
  out += fmt::format("  parameters     {}\n", grouped(total));
  for (const auto& [group, n] : groups) out += fmt::format("    {:<13}{:>16}\n", group, grouped(n));
  const auto n = static_cast<double>(total);
  out += fmt::format(
      "  memory         weights {} in f32, {} in bf16; training about {} without activations\n",
      in_bytes(4 * n), in_bytes(2 * n), in_bytes(16 * n));
  out += stored(folder, c);
  const SequenceCache cache(c, DType::bf16);
  const auto token =
      static_cast<double>(cache.layout().numel()) / kPanel * static_cast<double>(c.n_layer);
  out += fmt::format(
      "  cache          {} a token in f32, {} in bf16 (window layers keep their window only)\n",
      in_bytes(4 * token), in_bytes(2 * token));
  std::string tokenizer = "none in the folder";
  if (std::filesystem::exists(folder + "/tokenizer.model") ||
      std::filesystem::exists(folder + "/tokenizer_config.json")) {
    const auto loaded = load_tokenizer(folder);
    tokenizer = fmt::format("{}, {} ids", loaded->kind(), loaded->vocab_size());
  }
  return out + fmt::format("  tokenizer      {}\n", tokenizer);
}

}  // namespace dcformer
