#include "dcformer/train/metrics_log.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"

namespace dcformer {

void for_each_step_line(std::istream& text, int64_t last, const StepLineVisitor& f) {
  int64_t before = 0;
  for (std::string line; std::getline(text, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json.at("step").is_number_integer())
      continue;
    const auto step = json.at("step").get<int64_t>();
    if (step <= before || step > last) continue;
    before = step;
    f(step, line, json);
  }
}

StepLines::~StepLines() {
  if (fd_ >= 0) close(fd_);
}

int64_t StepLines::open(int64_t step) {
  const std::string text = std::filesystem::exists(path_) ? read_file(path_) : "";
  std::string kept;
  int64_t n_line = 0;
  std::istringstream lines(text);
  for_each_step_line(lines, step, [&](int64_t, const std::string& line, const nlohmann::json&) {
    kept += line + "\n";
    ++n_line;
  });
  if (kept != text) replace_file(path_, kept);
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(fd_ >= 0, "{}: cannot write: {}", path_, std::strerror(errno));
  return n_line;
}

void StepLines::append(const nlohmann::ordered_json& line) const {
  write_all(fd_, path_, line.dump() + "\n");
}

void StepLines::sync() const { sync_file(fd_, path_); }

void MetricsLog::open(int64_t step, int64_t evaluated_step) {
  const int64_t n_missing = step - steps_.open(step);
  if (n_missing > 0)
    spdlog::warn("{}: {} of the first {} steps are missing", steps_.path(), n_missing, step);
  evaluations_.open(evaluated_step);
}

void MetricsLog::write(const StepMetrics& m) const {
  nlohmann::ordered_json line = {{"step", m.step},
                                 {"loss", m.loss},
                                 {"gradient_norm", m.gradient_norm},
                                 {"parameter_norm", m.parameter_norm},
                                 {"learning_rate", m.learning_rate},
                                 {"seconds", m.seconds},
                                 {"tokens_per_second", m.tokens_per_second}};
  if (m.skipped) line["skipped"] = true;
  steps_.append(line);
}

void MetricsLog::write(int64_t step, const Evaluation& e) const {
  nlohmann::ordered_json line = {{"step", step},
                                 {"loss", e.loss},
                                 {"perplexity", e.perplexity()},
                                 {"accuracy", e.accuracy},
                                 {"n_prediction", e.n_prediction}};
  if (e.bits_per_byte) line["bits_per_byte"] = *e.bits_per_byte;
  evaluations_.append(line);
}

void MetricsLog::sync() const {
  steps_.sync();
  evaluations_.sync();
}

}  // namespace dcformer
