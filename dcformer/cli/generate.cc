#include <cmath>
#include <memory>
#include <string>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"
#include "dcformer/cli/commands.h"
#include "dcformer/cli/model_options.h"
#include "dcformer/cli/streams.h"
#include "dcformer/cli/validators.h"
#include "dcformer/generate/generator.h"
#include "dcformer/model/checkpoint.h"
#include "dcformer/ops/choose_dtype.h"
#include "dcformer/text/stream_decoder.h"
#include "dcformer/train/checkpoint_store.h"

namespace dcformer {
namespace {

struct GenerateArguments {
  std::string model;
  std::string prompt;
  std::string prompt_file;
  int64_t max_tokens = 200;
  std::string dtype = "auto";
  std::string composition_weights = "auto";
  SamplingOptions sampling;
};

void write_now(const std::string& text) {
  write_output(text);
  flush_output();
}

void generate_text(const GenerateArguments& arguments, const GlobalOptions& global) {
  Context context(global.threads);
  const std::string prompt =
      arguments.prompt_file.empty() ? arguments.prompt : read_file(arguments.prompt_file);
  const std::string folder = model_folder(arguments.model);
  const auto tokenizer = load_tokenizer(folder);
  const auto model = load_model(context, folder, choose_compute_dtype(context, arguments.dtype),
                                parse_composition_weights(arguments.composition_weights));
  require(tokenizer->vocab_size() <= model->config().vocab_size,
          "{}: the tokenizer has {} ids, more than the model's vocabulary of {}", folder,
          tokenizer->vocab_size(), model->config().vocab_size);
  // A text without a beginning starts where a document ended.
  std::vector<int32_t> ids = tokenizer->encode(prompt);
  if (ids.empty()) {
    require(tokenizer->end_of_document() >= 0,
            "{}: the tokenizer has no token that ends a document, expected a prompt", folder);
    ids.push_back(tokenizer->end_of_document());
  }
  SamplingOptions sampling = arguments.sampling;
  sampling.n_id = tokenizer->vocab_size();
  StreamDecoder decoder(*tokenizer);
  // Before the prompt is printed: a refused one leaves nothing on standard output.
  check_prompt(*model, static_cast<int64_t>(ids.size()));
  write_now(prompt);
  generate(context, *model, ids, arguments.max_tokens, tokenizer->end_of_document(), sampling,
           [&](int32_t token) {
             write_now(decoder.push(token));
             return true;
           });
  write_now(decoder.finish() + "\n");
}

}  // namespace

void add_generate_command(CLI::App& app, const GlobalOptions& global) {
  auto* command = app.add_subcommand("generate", "Continue a prompt");
  auto arguments = std::make_shared<GenerateArguments>();
  command
      ->add_option("model", arguments->model,
                   "A model folder, or a run folder (its newest checkpoint)")
      ->required()
      ->check(path_name());
  auto* prompt =
      command->add_option("--prompt", arguments->prompt, "The text to continue (default: none)");
  command->add_option("--prompt-file", arguments->prompt_file, "Read the prompt from this file")
      ->check(path_name())
      ->excludes(prompt);
  command->add_option("--max-tokens", arguments->max_tokens, "At most this many new tokens")
      ->capture_default_str()
      ->check(whole_number(0));
  command
      ->add_option("--temperature", arguments->sampling.temperature,
                   "0: always the most likely token")
      ->capture_default_str()
      ->check(number_where([](double t) { return t >= 0 && std::isfinite(t); }, "of at least 0"));
  command
      ->add_option("--top-k", arguments->sampling.top_k, "Only the k most likely tokens (0: all)")
      ->capture_default_str()
      ->check(whole_number(0));
  command
      ->add_option("--top-p", arguments->sampling.top_p,
                   "Only the most likely tokens of this total probability")
      ->capture_default_str()
      ->check(number_where([](double p) { return p > 0 && p <= 1; }, "above 0, at most 1"));
  command->add_option("--seed", arguments->sampling.seed, "Of the random choices")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_option("--dtype", arguments->dtype, "f32, bf16, or auto (the faster here)")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16", "auto"}));
  add_composition_weights_option(*command, arguments->composition_weights);
  command->footer(
      "Example:\n  build/dcformer generate runs/first --prompt \"It was a truth\" --max-tokens 80 "
      "--temperature 0.8 --top-p 0.9");
  command->callback([arguments, &global] { generate_text(*arguments, global); });
}

}  // namespace dcformer
