#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace dcformer::test {

/// `dcformer` in the background, its output thrown away.
class BackgroundRun {
 public:
  explicit BackgroundRun(const std::vector<std::string>& arguments) {
    std::vector<char*> argv = {const_cast<char*>(DCFORMER_BINARY)};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    child_ = fork();
    if (child_ == 0) {
      // Where the test itself is ended, its child must not train on.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int null = open("/dev/null", O_RDWR);
      for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
      execv(DCFORMER_BINARY, argv.data());
      _exit(127);
    }
  }
  ~BackgroundRun() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      wait();
    }
  }
  /// Sends a signal.
  void signal(int number) const { kill(child_, number); }
  pid_t process() const { return child_; }
  /// The exit status, or minus the signal. After a minute it is killed.
  int wait() {
    int status = 0;
    for (int i = 0; i < 6000 && waitpid(child_, &status, WNOHANG) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (i == 5990) kill(child_, SIGKILL);
    }
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t child_ = -1;
};

}  // namespace dcformer::test
