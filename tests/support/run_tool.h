#pragma once

#include <map>
#include <string>
#include <vector>

namespace dcformer::test {

/// What a run of a program left behind.
struct ToolResult {
  /// The exit status, or minus the number of the signal that ended it.
  int exit_code = -1;
  std::string output;
  std::string error;
  /// The time was over: the program was killed, `exit_code` is then -9.
  bool timed_out = false;
};

/// How to run it. (The empty initialisers let callers name some members only.)
struct ToolOptions {
  std::string input = {};
  std::map<std::string, std::string> environment = {};
  std::string working_folder = {};
  double timeout_seconds = 120;
};

/// Runs the built `dcformer` with the arguments and waits for its end.
ToolResult run_tool(const std::vector<std::string>& arguments, const ToolOptions& options = {});

/// The same for any program, by its path or by its name in PATH.
ToolResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                       const ToolOptions& options = {});

}  // namespace dcformer::test
