#include "dcformer/train/event_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "dcformer/base/file.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

// A reader of the format of its own, from the published descriptions of TFRecord, of protobuf's
// wire format and of the messages.

template <typename T>
T take(std::string_view& bytes) {
  T value{};
  if (bytes.size() < sizeof value) throw Error("cut short");
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

std::string_view take(std::string_view& bytes, uint64_t n) {
  if (bytes.size() < n) throw Error("cut short");
  const std::string_view front = bytes.substr(0, n);
  bytes.remove_prefix(n);
  return front;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<uint8_t>(bytes);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
}

// Bit by bit, without a table.
uint32_t masked_crc(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::vector<std::string_view> records(std::string_view bytes) {
  std::vector<std::string_view> records;
  while (!bytes.empty()) {
    const uint32_t length_crc = masked_crc(bytes.substr(0, 8));
    const auto length = take<uint64_t>(bytes);
    EXPECT_EQ(take<uint32_t>(bytes), length_crc);
    records.push_back(take(bytes, length));
    EXPECT_EQ(take<uint32_t>(bytes), masked_crc(records.back()));
  }
  return records;
}

// A message's fields by number: for the wire types 0 (varint), 1 and 5 (8 and 4 bytes), 2 (bytes).
struct Field {
  uint64_t type = 0;
  uint64_t number = 0;
  std::string_view bytes;
};

std::multimap<uint64_t, Field> fields(std::string_view message) {
  std::multimap<uint64_t, Field> fields;
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    Field field{key & 7, 0, {}};
    if (field.type == 0) field.number = take_varint(message);
    if (field.type == 1) field.bytes = take(message, 8);
    if (field.type == 2) field.bytes = take(message, take_varint(message));
    if (field.type == 5) field.bytes = take(message, 4);
    EXPECT_TRUE(field.type <= 2 || field.type == 5);
    fields.emplace(key >> 3, field);
  }
  return fields;
}

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  std::optional<uint64_t> session_status;
  std::map<std::string, float> values;
};

ReadEvent read_event(std::string_view message) {
  ReadEvent event;
  for (const auto& [number, field] : fields(message)) {
    std::string_view bytes = field.bytes;
    if (number == 1 && field.type == 1) {
      event.wall_time = take<double>(bytes);
    } else if (number == 2 && field.type == 0) {
      event.step = static_cast<int64_t>(field.number);
    } else if (number == 3 && field.type == 2) {
      event.file_version = bytes;
    } else if (number == 7 && field.type == 2) {
      const auto log = fields(bytes);
      EXPECT_EQ(log.size(), 1u);
      EXPECT_EQ(log.begin()->second.type, 0u);
      EXPECT_EQ(log.begin()->first, 1u);
      event.session_status = log.begin()->second.number;
    } else if (number == 5 && field.type == 2) {
      for (const auto& [inner_number, inner] : fields(bytes)) {
        EXPECT_EQ(inner_number, 1u);
        const auto value = fields(inner.bytes);
        EXPECT_EQ(value.size(), 2u);
        EXPECT_EQ(value.find(1)->second.type, 2u);
        EXPECT_EQ(value.find(2)->second.type, 5u);
        std::string_view number_bytes = value.find(2)->second.bytes;
        event.values[std::string(value.find(1)->second.bytes)] = take<float>(number_bytes);
      }
    } else {
      ADD_FAILURE() << "field " << number << " of type " << field.type;
    }
  }
  return event;
}

std::vector<ReadEvent> read_events(const std::string& path) {
  std::vector<ReadEvent> events;
  const std::string bytes = read_file(path);
  for (const std::string_view record : records(bytes)) events.push_back(read_event(record));
  return events;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

using Values = std::map<std::string, float>;

TEST(EventFile, HoldsWhatItIsTold) {
  const test::TemporaryFolder folder;
  const double begin = now();
  EventFile file(folder.path(), 41);
  const std::vector<std::pair<std::string, double>> scalars = {
      {"a/zero", 0}, {"b", -1.5}, {"ünusual tag", 1e-3}};
  file.add(int64_t{1} << 40, scalars);
  file.sync();
  const auto events = read_events(file.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_FALSE(events[0].session_status);
  EXPECT_EQ(events[1].step, 41);
  EXPECT_EQ(events[1].session_status, 1u);
  EXPECT_EQ(events[1].file_version, "");
  EXPECT_EQ(events[2].step, int64_t{1} << 40);
  EXPECT_FALSE(events[2].session_status);
  EXPECT_EQ(events[2].values, (Values{{"a/zero", 0}, {"b", -1.5}, {"ünusual tag", 1e-3f}}));
  double last = begin;
  for (const ReadEvent& event : events) {
    EXPECT_GE(event.wall_time, last);
    last = event.wall_time;
  }
  EXPECT_LE(last, now());
}

TEST(EventFile, WritesUpdatesAndEvaluations) {
  const test::TemporaryFolder folder;
  EventFile file(folder.path(), 1);
  StepMetrics m;
  m.step = 1;
  m.loss = 2.5;
  m.gradient_norm = 3;
  m.clipped_gradient_norm = 1;
  m.parameter_norm = 7;
  m.learning_rate = 0.1;
  m.seconds = 2;
  m.tokens_per_second = 64;
  file.write(m);
  m.step = 2;
  m.loss = std::nan("");
  m.gradient_norm = std::numeric_limits<double>::infinity();
  m.clipped_gradient_norm = 0;
  m.skipped = true;
  file.write(m);
  Evaluation e;
  e.loss = std::log(8.0);
  e.accuracy = 0.75;
  file.write(2, e);
  e.loss = 100;  // its perplexity is beyond 32-bit floats
  file.write(3, e);
  const auto events = read_events(file.path());
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].values, (Values{{"learning/loss", 2.5},
                                      {"learning/grad_norm", 1},
                                      {"learning/raw_grad_norm", 3},
                                      {"learning/param_norm", 7},
                                      {"learning/current_learning_rate", 0.1f},
                                      {"perf/step_time_seconds", 2},
                                      {"perf/tokens_per_second", 64}}));
  EXPECT_EQ(events[3].step, 2);
  EXPECT_EQ(events[3].values, (Values{{"learning/param_norm", 7},
                                      {"learning/current_learning_rate", 0.1f},
                                      {"perf/step_time_seconds", 2},
                                      {"perf/tokens_per_second", 64}}));
  EXPECT_EQ(events[4].step, 2);
  ASSERT_EQ(events[4].values.count("evaluation/perplexity"), 1u);
  EXPECT_NEAR(events[4].values.at("evaluation/perplexity"), 8, 1e-6);
  EXPECT_EQ(events[4].values.at("evaluation/loss"), static_cast<float>(std::log(8.0)));
  EXPECT_EQ(events[4].values.at("evaluation/accuracy"), 0.75f);
  EXPECT_EQ(events[4].values.size(), 3u);
  EXPECT_EQ(events[5].values, (Values{{"evaluation/loss", 100}, {"evaluation/accuracy", 0.75}}));
}

TEST(EventFile, WritesNothingWhereNothingIsFinite) {
  const test::TemporaryFolder folder;
  EventFile file(folder.path(), 1);
  const std::vector<std::pair<std::string, double>> scalars = {{"a", std::nan("")}, {"b", 1e300}};
  file.add(1, scalars);
  EXPECT_EQ(read_events(file.path()).size(), 2u);
}

// Readers take the files in the order of their names, which has to be that of the starts even
// within a second, or where the clock was set back.
TEST(EventFile, SortsAfterTheFilesThatAreThere) {
  const test::TemporaryFolder folder;
  replace_file(folder / "events.out.tfevents.x", "");
  std::vector<std::string> paths = {folder / "events.out.tfevents.4000000000.host.1"};
  replace_file(paths[0], "");
  for (int i = 0; i < 12; ++i) paths.push_back(EventFile(folder.path(), i).path());
  EXPECT_TRUE(std::is_sorted(paths.begin(), paths.end()));
  for (size_t i = 1; i < paths.size(); ++i) {
    EXPECT_LT(paths[i - 1], paths[i]);
    EXPECT_EQ(read_events(paths[i]).size(), 2u);
  }
  EXPECT_TRUE(paths[1].starts_with(folder / "events.out.tfevents.4000000001."));
}

// A process whose files may not grow beyond some bytes.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(EventFile, NamesAFileThatCannotBeWritten) {
  const test::TemporaryFolder folder;
  EventFile file(folder.path(), 1);
  const std::vector<std::pair<std::string, double>> scalars = {{"tag", 1}};
  file.add(1, scalars);
  const auto size = std::filesystem::file_size(file.path());
  for (const rlim_t room : {0, 10}) {
    const FileLimit limit(size + room);
    test::expect_error([&] { file.add(2, scalars); },
                       {file.path() + ": cannot write: File too large"});
  }
  EXPECT_EQ(std::filesystem::file_size(file.path()), size + 10);
  {
    const FileLimit limit(10);
    test::expect_error([&] { EventFile(folder.path(), 1); },
                       {folder / "events.out.tfevents.", ": cannot write: File too large"});
  }
  test::expect_error([&] { EventFile(folder / "none", 1); },
                     {folder / "none/events.out.tfevents.", "cannot write: No such file"});
}

}  // namespace
}  // namespace dcformer
