#include "dcformer/base/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "dcformer/base/file.h"
#include "tests/io/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

TEST(FolderLock, HoldsUntilItIsGone) {
  const test::TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    test::expect_error([&] { FolderLock second(folder.path()); },
                       {folder.path(), "process " + std::to_string(getpid())});
  }
  const FolderLock again(folder.path());
}

TEST(FolderLock, EndsWithItsProcess) {
  const test::TemporaryFolder folder;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = std::make_unique<FolderLock>(folder.path());
    const bool told = write(pipe_ends[1], "x", 1) == 1;
    pause();
    _exit(told ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1);
  test::expect_error([&] { FolderLock lock(folder.path()); },
                     {"process " + std::to_string(child) + " works in this folder"});
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  const FolderLock lock(folder.path());
  EXPECT_EQ(read_file(folder / FolderLock::kFile), std::to_string(getpid()) + "\n");
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(FolderLock, NamesAFolderThatIsNotThere) {
  const test::TemporaryFolder folder;
  test::expect_error([&] { FolderLock lock(folder / "absent"); },
                     {folder / "absent", "No such file"});
}

}  // namespace
}  // namespace dcformer
