#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <new>
#include <sstream>
#include <string>

#include "dcformer/cli/commands.h"
#include "dcformer/cli/streams.h"
#include "dcformer/cli/validators.h"

namespace {

constexpr int kFault = 1;
constexpr int kWrongUsage = 2;

// Output is for standard output; the log and progress go to standard error.
void set_up_log() {
  spdlog::set_default_logger(spdlog::stderr_logger_st("dcformer"));
  spdlog::set_pattern("%l: %v");
}

// A message may quote a key or a name from a file: whatever it holds, it stays one line and moves
// no cursor.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return text;
}

int report(const std::string& text) {
  dcformer::print_error("error: {}\n", one_line(text));
  return kFault;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Trains, evaluates and runs transformers with dynamically composable multi-head attention."};
  app.name("dcformer");
  app.require_subcommand(1);
  dcformer::GlobalOptions global;
  global.program = argv[0];
  app.add_option("--threads", global.threads, "Threads to compute with (default: all processors)")
      ->check(dcformer::whole_number(1, 1024));
  app.fallthrough();
  dcformer::add_train_command(app, global);
  dcformer::add_generate_command(app, global);
  dcformer::add_logits_command(app, global);
  dcformer::add_tokenizer_command(app, global);
  dcformer::add_info_command(app, global);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& e) {
    dcformer::flush_output();
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) {
      dcformer::print_error("error: {}\nRun 'dcformer --help', or 'dcformer COMMAND --help'.\n",
                            one_line(e.what()));
      return kWrongUsage;
    }
    std::ostringstream help;
    app.exit(e, help, help);
    dcformer::write_output(help.str());
  }
  dcformer::flush_output();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  dcformer::open_standard_streams();
  // A write beyond the limit of a file's size then fails like one on a full disk, with a message.
  std::signal(SIGXFSZ, SIG_IGN);
  set_up_log();
  try {
    return run(argc, argv);
  } catch (const std::filesystem::filesystem_error& e) {
    return report(e.path1().string() + ": " + e.code().message());
  } catch (const std::bad_alloc&) {
    return report("out of memory");
  } catch (const std::exception& e) {
    return report(e.what());
  }
}
