#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "dcformer/cli/commands.h"
#include "dcformer/cli/streams.h"
#include "dcformer/cli/validators.h"
#include "dcformer/train/trainer.h"

namespace dcformer {
namespace {

// The signal that asked the run to end; 0: none.
volatile std::sig_atomic_t interrupted = 0;

// The exit status of a program that a signal ended, as shells give it, is this plus the number.
constexpr int kSignalStatus = 128;

// The first signal lets the step finish and saves; the second ends the process as usual.
void on_signal(int number) {
  interrupted = number;
  std::signal(number, SIG_DFL);
}

struct TrainArguments {
  std::string run_file;
  std::string output;
  std::vector<std::string> overrides;
  std::string on_nan = "stop";
  TrainerOptions options;
};

// A name as a shell takes it for one word.
std::string shell_word(const std::string& name) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  if (name.find_first_not_of(plain) == std::string::npos) return name;
  std::string word = "'";
  for (const char c : name) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

/// The progress line: rewritten in place on a terminal, else a line every few seconds.
class Progress {
 public:
  explicit Progress(int64_t end) : end_(end), terminal_(isatty(STDERR_FILENO) != 0) {}

  void show(const StepMetrics& m) {
    // The mean of the recent past: step times vary.
    seconds_ = seconds_ == 0 ? m.seconds : 0.9 * seconds_ + 0.1 * m.seconds;
    loss_ = loss_ == 0 ? m.loss : 0.9 * loss_ + 0.1 * m.loss;
    const auto now = std::chrono::steady_clock::now();
    const bool due = now - shown_ > std::chrono::milliseconds(terminal_ ? 200 : 10000);
    if (!due && m.step != end_) return;
    shown_ = now;
    const double rate = m.tokens_per_second * m.seconds / seconds_;
    print_error("{}step {}/{}  loss {:.4f}  {:.0f} tokens/s  {} left{}",
                terminal_ ? "\r\033[K" : "", m.step, end_, loss_, rate,
                clock_text(static_cast<double>(end_ - m.step) * seconds_), terminal_ ? "" : "\n");
    open_line_ = terminal_;
    std::fflush(stderr);
  }
  /// Ends the line that is being rewritten.
  void close() {
    if (open_line_) print_error("\n");
    open_line_ = false;
  }

 private:
  int64_t end_;
  bool terminal_;
  bool open_line_ = false;
  double seconds_ = 0;
  double loss_ = 0;
  std::chrono::steady_clock::time_point shown_;
};

std::string describe(const Evaluation& e) {
  std::string text = fmt::format("{:.4f} nats per token", e.loss);
  if (e.bits_per_byte) text += fmt::format(", {:.4f} bits per byte", *e.bits_per_byte);
  return text;
}

/// The figures that the run's last line on standard output leaves out.
std::string describe_more(const Evaluation& e) {
  return fmt::format("perplexity {:.2f}, accuracy {:.4f} of {} predictions", e.perplexity(),
                     e.accuracy, e.n_prediction);
}

/// Holds `--set` to its form.
CLI::Validator override_form() {
  return {[](std::string& text) {
            try {
              parse_override(text);
            } catch (const Error& e) {
              return std::string(e.what());
            }
            return std::string();
          },
          "SECTION.KEY=VALUE"};
}

void train(const TrainArguments& arguments, const GlobalOptions& global) {
  Context context(global.threads);
  TrainerOptions options = arguments.options;
  if (!options.resume_from.empty()) options.resume = true;
  if (arguments.run_file.empty() && !options.resume)
    throw CLI::RequiredError("run is required, unless --resume or --resume-from is given",
                             CLI::ExitCodes::RequiredError);
  if (!options.init.empty()) options.init = model_folder(options.init);
  options.on_nan = arguments.on_nan == "skip" ? OnNan::skip : OnNan::stop;
  const std::string run_file =
      arguments.run_file.empty() ? RunFolder(arguments.output).run_file() : arguments.run_file;
  Trainer trainer(context, read_run_config(run_file, arguments.overrides), arguments.output,
                  options);
  const int64_t steps = trainer.config().train.steps;
  const int64_t end = options.stop_after > 0 ? std::min(steps, options.stop_after) : steps;
  if (trainer.step() >= end)
    spdlog::info("nothing is left to do up to step {}: {} are done", end, trainer.step());
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  Progress progress(end);
  const auto on_evaluation = [&](int64_t step, const Evaluation& e) {
    progress.close();
    print_error("step {}: validation: {}, {}\n", step, describe(e), describe_more(e));
  };
  trainer.run({[&](const StepMetrics& m) { progress.show(m); }, on_evaluation,
               [] { return interrupted != 0; }});
  progress.close();
  if (trainer.n_skipped() > 0)
    print_error("{} updates were skipped for values that were not finite\n", trainer.n_skipped());
  if (const int signal = interrupted; signal != 0) {
    const std::string saved = trainer.saved_step() < 0
                                  ? std::string("nothing is saved yet")
                                  : fmt::format("saved after step {}", trainer.saved_step());
    print_error("interrupted: {}; continue with: {} train --resume --output {}\n", saved,
                shell_word(global.program), shell_word(arguments.output));
    throw CLI::RuntimeError(kSignalStatus + signal);
  }
  const auto evaluation = trainer.evaluation([] { return interrupted != 0; });
  if (const int signal = interrupted; signal != 0) throw CLI::RuntimeError(kSignalStatus + signal);
  if (evaluation) write_output(fmt::format("validation: {}\n", describe(*evaluation)));
}

}  // namespace

void add_train_command(CLI::App& app, const GlobalOptions& global) {
  auto* command = app.add_subcommand("train", "Train a model as a run file says");
  auto arguments = std::make_shared<TrainArguments>();
  command
      ->add_option("run", arguments->run_file,
                   "The run file (JSON; see configs/ and docs/train.md); with --resume or "
                   "--resume-from the run's own unless given")
      ->check(path_name());
  command
      ->add_option("--output", arguments->output, "Folder of the run: checkpoints, metrics.jsonl")
      ->required()
      ->check(path_name());
  command
      ->add_option("--set", arguments->overrides,
                   "Override a key: --set train.learning_rate=1e-3 (repeatable)")
      ->allow_extra_args(false)
      ->take_all()
      ->check(override_form());
  auto* resume =
      command->add_flag("--resume", arguments->options.resume, "Continue the run in the folder");
  command
      ->add_option("--resume-from", arguments->options.resume_from,
                   "Continue from this checkpoint of the run (step-N or N) instead of the newest")
      ->check(path_name())
      ->excludes(resume);
  command
      ->add_option("--on-nan", arguments->on_nan,
                   fmt::format("An update whose loss or gradient is not finite: stop, or skip it "
                               "(at most {} in a row)",
                               kMostSkippedInARow))
      ->capture_default_str()
      ->check(CLI::IsMember({"stop", "skip"}));
  command
      ->add_option("--init", arguments->options.init, "Start from the weights of this model or run")
      ->check(path_name())
      ->excludes(resume)
      ->excludes("--resume-from");
  command
      ->add_option("--stop-after", arguments->options.stop_after,
                   "Stop after this many steps, schedule unchanged")
      ->check(whole_number(1));
  command->footer(
      "Example:\n  build/dcformer train configs/quickstart.json --output runs/first --set "
      "train.steps=200\n"
      "Ctrl-C finishes the step, saves, and ends; go on from there with\n"
      "  build/dcformer train --resume --output runs/first");
  command->callback([arguments, &global] { train(*arguments, global); });
}

}  // namespace dcformer
