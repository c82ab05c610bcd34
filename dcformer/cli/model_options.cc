#include "dcformer/cli/model_options.h"

namespace dcformer {

void add_composition_weights_option(CLI::App& command, std::string& value) {
  command
      .add_option("--composition-weights", value,
                  "Of files that hold them twice: original, merged (the published code's copies), "
                  "or auto (the trained ones)")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "original", "merged"}));
}

}  // namespace dcformer
