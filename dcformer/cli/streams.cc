#include "dcformer/cli/streams.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "dcformer/base/check.h"

namespace dcformer {

void open_standard_streams() {
  // The lowest number that is free is taken. For reading only: what is written to an output that
  // was closed is lost, and must count as such.
  for (int fd = 0; fd < 3; ++fd)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;
}

void write_output(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  require(written, "standard output: {}", std::strerror(errno));
}

void flush_output() {
  const bool written = std::fflush(stdout) == 0;
  require(written, "standard output: {}", std::strerror(errno));
}

}  // namespace dcformer
