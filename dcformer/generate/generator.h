#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dcformer/generate/sampler.h"
#include "dcformer/io/safetensors.h"
#include "dcformer/model/language_model.h"

namespace dcformer {

/// Throws Error for a prompt of `length` tokens that is empty or longer than the context.
void check_prompt(const LanguageModel& model, int64_t length);

/// Throws Error, naming `where`, row and place, for an id outside the model's vocabulary, and for
/// rows that are longer than the context.
void check_rows(const LanguageModel& model, const IdRows& rows, const std::string& where);

/// Continues the prompt by up to `max_tokens` tokens, each given to `on_token` as it comes; stops
/// before `stop_id` (-1: none), when `on_token` returns false, or where the context ends. Returns
/// the tokens. Throws Error for an empty prompt, or one longer than the context.
std::vector<int32_t> generate(Context& context, const LanguageModel& model,
                              std::span<const int32_t> prompt, int64_t max_tokens, int32_t stop_id,
                              const SamplingOptions& sampling,
                              const std::function<bool(int32_t)>& on_token);

/// logits [rows, length, V] f32 of rows of ids: the first `prefill` tokens of each row in one pass
/// and the rest one by one through the caches; 0, or as many as there are: all in one pass. Throws
/// Error for ids outside the vocabulary, or rows longer than the context.
Tensor row_logits(Context& context, const LanguageModel& model, const IdRows& rows,
                  int64_t prefill);

}  // namespace dcformer
