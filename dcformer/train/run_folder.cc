#include "dcformer/train/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "dcformer/base/check.h"
#include "dcformer/base/file.h"

namespace dcformer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunFile = "/run.json";

// What a start leaves that ended before its run file was written.
bool is_trace_of_a_start(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  constexpr std::array<const char*, 3> kFiles = {FolderLock::kFile, "run.json.partial",
                                                 "checkpoints"};
  const bool known = std::find(kFiles.begin(), kFiles.end(), name) != kFiles.end();
  return known && (!entry.is_directory() || fs::is_empty(entry.path()));
}

// Files that were being replaced when the process ended.
void remove_partial_files(const std::string& run) {
  for (const char* name : {"run.json", "metrics.jsonl", "evaluations.jsonl", "report.svg",
                           "checkpoints.json", "latest"})
    fs::remove(run + "/" + name + ".partial");
}

// What can be told before the data are read: whether the folder, or what of its path is there, can
// be written.
void require_writable(const std::string& path) {
  std::error_code error;
  fs::path there = fs::absolute(path, error).lexically_normal();
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  require(fs::is_directory(there, error), "{}: {} is not a folder", path, there.string());
  const bool writable = access(there.c_str(), W_OK | X_OK) == 0;
  require(writable, "{}: cannot write: {}: {}", path, there.string(), std::strerror(errno));
}

}  // namespace

std::string RunFolder::run_file() const {
  std::string file = path_ + kRunFile;
  require(fs::exists(file), "{}: holds no run to resume (no run.json)", path_);
  return file;
}

void RunFolder::require_new() const {
  require_writable(path_);
  if (!fs::exists(path_)) return;
  for (const auto& entry : fs::directory_iterator(path_))
    require(is_trace_of_a_start(entry), "{}: {}", path_,
            fs::exists(path_ + kRunFile)
                ? "holds a run already; continue it with --resume, or choose another folder"
                : "is not empty; choose a new folder");
}

void RunFolder::create(const RunConfig& run) {
  std::error_code error;
  fs::create_directories(path_ + "/checkpoints", error);
  require(!error, "{}: cannot create the folder: {}", path_, error.message());
  lock_.emplace(path_);
  require_new();
  write_run_file(run);
}

RunConfig RunFolder::open() {
  const std::string file = run_file();
  lock_.emplace(path_);
  remove_partial_files(path_);
  fs::create_directories(path_ + "/checkpoints");
  return read_run_config(file, {});
}

void RunFolder::write_run_file(const RunConfig& run) const {
  replace_file(path_ + kRunFile, run.json.dump(1) + "\n");
}

}  // namespace dcformer
