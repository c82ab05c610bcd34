#include "dcformer/train/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "dcformer/base/check.h"
#include "dcformer/base/crc32c.h"
#include "dcformer/base/file.h"

namespace dcformer {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The seconds since 1970, or more where an earlier file's name has as many: two starts within a
// second, or a clock that was set back, must not change the files' order.
std::string new_path(const std::string& folder) {
  auto seconds = static_cast<int64_t>(now());
  std::error_code unreadable;  // the file cannot be made there then, which says why
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    uint32_t other = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
    seconds = std::max(seconds, int64_t{other} + 1);
  }
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') std::strcpy(host, "localhost");
  return fmt::format("{}/{}{}.{}.{}", folder, kPrefix, seconds, host, getpid());
}

template <typename T>
void append_bytes(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_masked_crc(std::string& bytes, std::string_view of) {
  const uint32_t crc = crc32c(of);
  append_bytes(bytes, (crc >> 15 | crc << 17) + 0xa282ead8u);
}

/// A message in the wire format of protocol buffers (protobuf.dev, "Encoding"), field by field.
/// Written here, for five fields: Debian's sentencepiece exports an older protobuf library of its
/// own, which a second one in the same process calls into.
class Message {
 public:
  void add(uint32_t field, double value) {
    add_tag(field, 1);
    append_bytes(bytes_, value);
  }
  void add(uint32_t field, float value) {
    add_tag(field, 5);
    append_bytes(bytes_, value);
  }
  void add(uint32_t field, int64_t value) {
    add_tag(field, 0);
    add_varint(static_cast<uint64_t>(value));
  }
  void add(uint32_t field, std::string_view value) {
    add_tag(field, 2);
    add_varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void add_tag(uint32_t field, uint32_t type) { add_varint(field << 3 | type); }
  void add_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// The published numbers of the fields of TensorFlow's event.proto and summary.proto.
namespace event {
constexpr uint32_t kWallTime = 1;
constexpr uint32_t kStep = 2;
constexpr uint32_t kFileVersion = 3;
constexpr uint32_t kSummary = 5;
constexpr uint32_t kSessionLog = 7;
}  // namespace event
namespace summary {
constexpr uint32_t kValue = 1;
constexpr uint32_t kTag = 1;
constexpr uint32_t kSimpleValue = 2;
}  // namespace summary
namespace session_log {
constexpr uint32_t kStatus = 1;
constexpr int64_t kStart = 1;
}  // namespace session_log

// A record of the TFRecord format: the data's length (u64) and its checksum, the data and theirs.
void append_record(int fd, const std::string& path, Message& event) {
  event.add(event::kWallTime, now());
  const std::string& data = event.bytes();
  std::string record;
  append_bytes(record, static_cast<uint64_t>(data.size()));
  append_masked_crc(record, std::string(record));
  record += data;
  append_masked_crc(record, data);
  write_all(fd, path, record);
}

}  // namespace

EventFile::EventFile(std::string path) : path_(std::move(path)) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  require(fd_ >= 0, "{}: cannot write: {}", path_, std::strerror(errno));
}

EventFile::EventFile(const std::string& folder, int64_t first_step) : EventFile(new_path(folder)) {
  Message version;
  version.add(event::kFileVersion, std::string_view("brain.Event:2"));
  append_record(fd_, path_, version);
  Message status;
  status.add(session_log::kStatus, session_log::kStart);
  Message start;
  start.add(event::kStep, first_step);
  start.add(event::kSessionLog, std::string_view(status.bytes()));
  append_record(fd_, path_, start);
}

EventFile::~EventFile() {
  if (fd_ >= 0) close(fd_);
}

void EventFile::add(int64_t step, std::span<const std::pair<std::string, double>> scalars) {
  Message values;
  for (const auto& [tag, value] : scalars) {
    const auto rounded = static_cast<float>(value);
    if (!std::isfinite(rounded)) continue;
    Message entry;
    entry.add(summary::kTag, std::string_view(tag));
    entry.add(summary::kSimpleValue, rounded);
    values.add(summary::kValue, std::string_view(entry.bytes()));
  }
  if (values.bytes().empty()) return;
  Message event;
  event.add(event::kStep, step);
  event.add(event::kSummary, std::string_view(values.bytes()));
  append_record(fd_, path_, event);
}

void EventFile::write(const StepMetrics& m) {
  std::vector<std::pair<std::string, double>> scalars = {
      {"learning/loss", m.loss},
      {"learning/raw_grad_norm", m.gradient_norm},
      {"learning/param_norm", m.parameter_norm},
      {"learning/current_learning_rate", m.learning_rate},
      {"perf/step_time_seconds", m.seconds},
      {"perf/tokens_per_second", m.tokens_per_second}};
  if (!m.skipped) scalars.emplace_back("learning/grad_norm", m.clipped_gradient_norm);
  add(m.step, scalars);
}

void EventFile::write(int64_t step, const Evaluation& e) {
  const std::vector<std::pair<std::string, double>> scalars = {
      {"evaluation/loss", e.loss},
      {"evaluation/perplexity", e.perplexity()},
      {"evaluation/accuracy", e.accuracy}};
  add(step, scalars);
}

void EventFile::sync() const { sync_file(fd_, path_); }

}  // namespace dcformer
