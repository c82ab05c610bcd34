#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dcformer/model/language_model.h"

namespace dcformer {

/// Where values that are not finite come from, for a message: the parameter that holds one; else
/// the rows of an update whose forward pass meets one, and the part of the model where the first of
/// them does; else the first parameter, in the order of the backward pass, whose gradient has one.
/// Runs the forward pass of every row. `numbers` are the rows' places in the data.
std::string locate_not_finite(Context& context, const LanguageModel& model,
                              std::span<const int64_t> numbers,
                              const std::vector<std::span<const int32_t>>& rows);

}  // namespace dcformer
