#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dcformer {

/// Options that every subcommand shares.
struct GlobalOptions {
  /// 0: all processors that the process may use.
  int threads = 0;
  /// The name that the tool was called by.
  std::string program = "dcformer";
};

// Each adds one subcommand to the tool. Its work runs when the command line is parsed; faults are
// thrown as Error, another exit status as CLI::RuntimeError.
void add_train_command(CLI::App& app, const GlobalOptions& global);
void add_generate_command(CLI::App& app, const GlobalOptions& global);
void add_logits_command(CLI::App& app, const GlobalOptions& global);
void add_tokenizer_command(CLI::App& app, const GlobalOptions& global);
void add_info_command(CLI::App& app, const GlobalOptions& global);

}  // namespace dcformer
