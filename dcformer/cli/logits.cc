#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/cli/commands.h"
#include "dcformer/cli/model_options.h"
#include "dcformer/cli/validators.h"
#include "dcformer/generate/generator.h"
#include "dcformer/model/checkpoint.h"
#include "dcformer/ops/choose_dtype.h"
#include "dcformer/train/checkpoint_store.h"

namespace dcformer {
namespace {

struct LogitsArguments {
  std::string model;
  std::string tokens;
  std::string output;
  int64_t prefill = 0;
  std::string dtype = "f32";
  std::string composition_weights = "auto";
};

void write_logits(const LogitsArguments& arguments, const GlobalOptions& global) {
  Context context(global.threads);
  const TensorReference tokens = parse_tensor_reference(arguments.tokens);
  std::error_code error;
  require(!std::filesystem::equivalent(tokens.path, arguments.output, error),
          "{}: is the file of the tokens, expected another for the logits", arguments.output);
  require_replaceable(arguments.output);
  const IdRows rows = id_rows(read_tensor(tokens, "input_ids"), arguments.tokens);
  const auto model = load_model(context, model_folder(arguments.model),
                                choose_compute_dtype(context, arguments.dtype),
                                parse_composition_weights(arguments.composition_weights));
  check_rows(*model, rows, arguments.tokens);
  const Tensor logits = row_logits(context, *model, rows, arguments.prefill);
  const auto values = logits.span<float>();
  const auto n =
      std::count_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  if (n > 0) spdlog::warn("{} of {} logits are not finite", n, values.size());
  write_safetensors(arguments.output, {{"logits", logits}});
}

}  // namespace

void add_logits_command(CLI::App& app, const GlobalOptions& global) {
  auto* command = app.add_subcommand("logits", "Write a model's logits for rows of token ids");
  auto arguments = std::make_shared<LogitsArguments>();
  command
      ->add_option("model", arguments->model,
                   "A model folder, or a run folder (its newest checkpoint)")
      ->required()
      ->check(path_name());
  command
      ->add_option("--tokens", arguments->tokens,
                   "FILE.safetensors[:NAME] with ids [B,T]; NAME: input_ids, else the only tensor")
      ->required()
      ->check(path_name());
  command->add_option("--output", arguments->output, "FILE.safetensors for `logits` [B,T,V] f32")
      ->required()
      ->check(path_name());
  command
      ->add_option("--prefill", arguments->prefill,
                   "Tokens of the first pass, the rest one by one (0: all)")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_option("--dtype", arguments->dtype, "f32, bf16, or auto (the faster here)")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16", "auto"}));
  add_composition_weights_option(*command, arguments->composition_weights);
  command->footer(
      "Example:\n  build/dcformer logits runs/first --tokens ids.safetensors --output "
      "logits.safetensors "
      "--prefill 12");
  command->callback([arguments, &global] { write_logits(*arguments, global); });
}

}  // namespace dcformer
