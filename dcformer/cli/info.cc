#include <memory>
#include <string>

#include "dcformer/cli/commands.h"
#include "dcformer/cli/streams.h"
#include "dcformer/cli/validators.h"
#include "dcformer/inspect/model_report.h"
#include "dcformer/train/checkpoint_store.h"

namespace dcformer {

void add_info_command(CLI::App& app, const GlobalOptions&) {
  auto* command =
      app.add_subcommand("info", "Describe a model: parameters by group, memory, configuration");
  auto model = std::make_shared<std::string>();
  command->add_option("model", *model, "A model folder, or a run folder (its newest checkpoint)")
      ->required()
      ->check(path_name());
  command->footer("Example:\n  build/dcformer info runs/first");
  command->callback([model] { write_output(model_report(model_folder(*model))); });
}

}  // namespace dcformer
