#include "tests/support/run_tool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "dcformer/base/check.h"

namespace dcformer::test {
namespace {

// Both ends of a pipe, closed at the end of the object's life.
class Pipe {
 public:
  Pipe() { require(pipe2(ends_.data(), O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno)); }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_read() { close_end(0); }
  void close_write() { close_end(1); }

 private:
  void close_end(int i) {
    if (ends_[i] >= 0) close(ends_[i]);
    ends_[i] = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

// Ends in the program, or in exit status 127 when there is none.
[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments,
                         const ToolOptions& options) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  if (options.working_folder.empty() || chdir(options.working_folder.c_str()) == 0)
    execvp(program.c_str(), argv.data());
  const char* text = std::strerror(errno);
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(126);
  _exit(127);
}

// One read; false at the end of the stream.
bool read_some(int fd, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR;
  text.append(buffer.data(), static_cast<size_t>(count));
  return count > 0;
}

// One write; false when all is written or nobody reads any more. No more than PIPE_BUF bytes: that
// much never blocks once poll() has said that there is room.
bool write_some(int fd, std::string_view text, size_t& written) {
  const size_t size = std::min<size_t>(text.size() - written, PIPE_BUF);
  const ssize_t count = write(fd, text.data() + written, size);
  if (count < 0) return errno == EINTR;
  written += static_cast<size_t>(count);
  return written < text.size();
}

// A program that ends without reading all of its input must not end the test with SIGPIPE.
class IgnoreBrokenPipe {
 public:
  IgnoreBrokenPipe() : before_(signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoreBrokenPipe() { signal(SIGPIPE, before_); }
  IgnoreBrokenPipe(const IgnoreBrokenPipe&) = delete;
  IgnoreBrokenPipe& operator=(const IgnoreBrokenPipe&) = delete;

 private:
  void (*before_)(int);
};

}  // namespace

ToolResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                       const ToolOptions& options) {
  const IgnoreBrokenPipe guard;
  Pipe input;
  Pipe output;
  Pipe error;
  const pid_t child = fork();
  require(child >= 0, "fork: {}", std::strerror(errno));
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    dup2(input.read_end(), STDIN_FILENO);
    dup2(output.write_end(), STDOUT_FILENO);
    dup2(error.write_end(), STDERR_FILENO);
    become(program, arguments, options);
  }
  input.close_read();
  output.close_write();
  error.close_write();
  if (options.input.empty()) input.close_write();

  ToolResult result;
  size_t written = 0;
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(options.timeout_seconds);
  while (output.read_end() >= 0 || error.read_end() >= 0) {
    // poll() passes over negative descriptors, so closed pipes may stay in the list.
    std::array<pollfd, 3> ends{pollfd{output.read_end(), POLLIN, 0},
                               pollfd{error.read_end(), POLLIN, 0},
                               pollfd{input.write_end(), POLLOUT, 0}};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      result.timed_out = true;
      kill(child, SIGKILL);
      break;
    }
    poll(ends.data(), ends.size(), static_cast<int>(left));
    if (ends[0].revents != 0 && !read_some(output.read_end(), result.output)) output.close_read();
    if (ends[1].revents != 0 && !read_some(error.read_end(), result.error)) error.close_read();
    if (ends[2].revents != 0 && !write_some(input.write_end(), options.input, written))
      input.close_write();
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return result;
}

ToolResult run_tool(const std::vector<std::string>& arguments, const ToolOptions& options) {
  return run_program(DCFORMER_BINARY, arguments, options);
}

}  // namespace dcformer::test
