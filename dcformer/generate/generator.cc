#include "dcformer/generate/generator.h"

#include "dcformer/base/check.h"
#include "dcformer/data/rows.h"

namespace dcformer {
namespace {

/// Runs ids of one cached sequence through the model; returns the hidden states.
Tensor advance(Context& context, const LanguageModel& model, std::span<const int32_t> ids,
               SequenceCache& cache) {
  SequenceBatch batch;
  batch.append(static_cast<int64_t>(ids.size()), cache);
  return model.forward(context, ids, batch);
}

}  // namespace

void check_prompt(const LanguageModel& model, int64_t length) {
  require(length > 0, "generate: the prompt is empty");
  require(length <= model.config().block_size,
          "generate: the prompt has {} tokens, more than the context of {}", length,
          model.config().block_size);
}

void check_rows(const LanguageModel& model, const IdRows& rows, const std::string& where) {
  const ModelConfig& config = model.config();
  require(rows.length <= config.block_size, "{}: rows of {} ids, more than the context of {}",
          where, rows.length, config.block_size);
  const auto length = static_cast<size_t>(rows.length);
  for (int64_t r = 0; r < rows.n_row; ++r)
    check_ids({rows.ids.data() + static_cast<size_t>(r) * length, length}, r, config.vocab_size,
              where);
}

std::vector<int32_t> generate(Context& context, const LanguageModel& model,
                              std::span<const int32_t> prompt, int64_t max_tokens, int32_t stop_id,
                              const SamplingOptions& sampling,
                              const std::function<bool(int32_t)>& on_token) {
  const auto length = static_cast<int64_t>(prompt.size());
  check_prompt(model, length);
  Sampler sampler(sampling);
  SequenceCache cache(model.config(), model.parameters().compute_dtype());
  const Tensor logits = Tensor::empty(context, DType::f32, {1, model.config().vocab_size});
  std::vector<int32_t> tokens;
  Tensor hidden = advance(context, model, prompt, cache);
  while (static_cast<int64_t>(tokens.size()) < max_tokens) {
    model.logits(context, hidden.matrix().row_range(hidden.shape()[0] - 1, 1),
                 logits.matrix().typed<float>());
    const int32_t token = sampler.sample(logits.span<float>());
    if (token == stop_id) break;
    tokens.push_back(token);
    if (!on_token(token) || cache.length() == model.config().block_size) break;
    if (static_cast<int64_t>(tokens.size()) < max_tokens)
      hidden = advance(context, model, {&token, 1}, cache);
  }
  return tokens;
}

Tensor row_logits(Context& context, const LanguageModel& model, const IdRows& rows,
                  int64_t prefill) {
  require(prefill >= 0, "logits: prefill is {}, expected 0 (all in one pass) or more", prefill);
  const int64_t vocabulary = model.config().vocab_size;
  const bool one_pass = prefill == 0 || prefill >= rows.length;
  const Tensor logits = Tensor::empty(context, DType::f32, {rows.n_row, rows.length, vocabulary});
  for (int64_t r = 0; r < rows.n_row; ++r) {
    const std::span<const int32_t> ids(rows.ids.data() + r * rows.length,
                                       static_cast<size_t>(rows.length));
    const auto write = [&](const Tensor& hidden, int64_t done) {
      model.logits(
          context, hidden.matrix(),
          logits.matrix().row_range(r * rows.length + done, hidden.shape()[0]).typed<float>());
    };
    if (one_pass) {
      SequenceBatch batch;
      batch.append(rows.length);
      write(model.forward(context, ids, batch), 0);
      continue;
    }
    SequenceCache cache(model.config(), model.parameters().compute_dtype());
    for (int64_t done = 0, n = prefill; done < rows.length; done += n, n = 1)
      write(advance(context, model, ids.subspan(static_cast<size_t>(done), static_cast<size_t>(n)),
                    cache),
            done);
  }
  return logits;
}

}  // namespace dcformer
