#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dcformer {

// Options that the commands on models share.

/// --composition-weights: which form counts where a file holds both (PublishedWeights).
void add_composition_weights_option(CLI::App& command, std::string& value);

}  // namespace dcformer
