#include "dcformer/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include "dcformer/base/error.h"
#include "dcformer/base/mapped_file.h"
#include "tests/support/temporary_folder.h"

namespace dcformer {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The text of the Error that `action` throws, or "" when it throws none.
template <typename F>
std::string error_of(F&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(ReadFile, GivesAllBytes) {
  const TemporaryFolder folder;
  const std::string bytes("a\0\xff\r\n", 5);
  write_text(folder / "file", bytes);
  EXPECT_EQ(read_file(folder / "file"), bytes);
  write_text(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty"), "");
}

TEST(ReadFile, NamesWhatItCannotRead) {
  const TemporaryFolder folder;
  const std::string missing = folder / "missing";
  EXPECT_THAT(error_of([&] { read_file(missing); }),
              AllOf(HasSubstr(missing), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { read_file(folder.path()); }),
              AllOf(HasSubstr(folder.path()), HasSubstr("folder")));
}

TEST(ReplaceFile, LeavesWhatIsNoFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "folder");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const std::string& path : {folder / "folder", folder / "fifo", std::string("/dev/null")}) {
    EXPECT_EQ(error_of([&] { replace_file(path, "bytes"); }), path + ": is not a regular file");
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  }
}

TEST(ReplaceFile, FollowsLinks) {
  const TemporaryFolder folder;
  write_text(folder / "file", "before");
  std::filesystem::create_directory(folder / "links");
  std::filesystem::create_symlink("../file", folder / "links/first");
  std::filesystem::create_symlink(folder / "links/first", folder / "second");
  std::filesystem::create_symlink("new", folder / "dangling");
  replace_file(folder / "second", "after");
  EXPECT_EQ(read_file(folder / "file"), "after");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "links/first"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "second"));
  replace_file(folder / "dangling", "new");
  EXPECT_EQ(read_file(folder / "new"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "dangling"));
}

TEST(ReplaceFile, WhatCannotBeWrittenIsSaidBefore) {
  const TemporaryFolder folder;
  write_text(folder / "file", "text");
  EXPECT_THAT(error_of([&] { require_replaceable(folder / "absent/file"); }),
              AllOf(HasSubstr(folder / "absent/file"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { require_replaceable(folder / "file/file"); }),
              HasSubstr("Not a directory"));
  require_replaceable(folder / "file");
  require_replaceable(folder / "new");
  EXPECT_EQ(read_file(folder / "file"), "text");
}

TEST(ReplaceFile, WritesAndOverwrites) {
  const TemporaryFolder folder;
  replace_file(folder / "file", "first");
  EXPECT_EQ(read_file(folder / "file"), "first");
  replace_file(folder / "file", std::string_view("se\0cond", 7));
  EXPECT_EQ(read_file(folder / "file"), std::string("se\0cond", 7));
  EXPECT_FALSE(std::filesystem::exists(folder / "file.partial"));
}

TEST(ReplaceFile, WorksInTheCurrentFolder) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  replace_file("file", "text");
  std::filesystem::current_path(before);
  EXPECT_EQ(read_file(folder / "file"), "text");
}

TEST(ReplaceFile, AFailureLeavesTheOldFile) {
  const TemporaryFolder folder;
  replace_file(folder / "file", "old");
  EXPECT_THROW(replace_file(folder / "file",
                            [](const std::string& beside) {
                              write_text(beside, "half");
                              throw std::runtime_error("power cut");
                            }),
               std::runtime_error);
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "file.partial"));
}

TEST(ReplaceFile, TheOldFileStandsWhileTheNewOneIsWritten) {
  const TemporaryFolder folder;
  replace_file(folder / "file", "old");
  replace_file(folder / "file", [&](const std::string& beside) {
    write_text(beside, "new");
    EXPECT_NE(beside, folder / "file");
    EXPECT_EQ(read_file(folder / "file"), "old");
  });
  EXPECT_EQ(read_file(folder / "file"), "new");
}

TEST(ReplaceFile, NamesWhatItCannotWrite) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { replace_file(folder / "none/file", "text"); }),
              AllOf(HasSubstr(folder / "none/file"), HasSubstr("No such file")));
  std::filesystem::create_directory(folder / "taken");
  write_text(folder / "taken/inside", "text");
  EXPECT_THAT(error_of([&] { replace_file(folder / "taken", "text"); }),
              HasSubstr(folder / "taken"));
  EXPECT_FALSE(std::filesystem::exists(folder / "taken.partial"));
  // A writer that writes nothing.
  EXPECT_THAT(error_of([&] { replace_file(folder / "file", [](const std::string&) {}); }),
              HasSubstr(folder / "file"));
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
}

TEST(MappedFile, MapsBytesAndOutlivesTheObject) {
  const TemporaryFolder folder;
  write_text(folder / "file", "bytes");
  std::shared_ptr<const std::byte> owner;
  {
    const MappedFile file(folder / "file");
    EXPECT_EQ(file.path(), folder / "file");
    ASSERT_EQ(file.bytes().size(), 5u);
    EXPECT_EQ(file.bytes()[4], std::byte{'s'});
    owner = file.owner();
  }
  EXPECT_EQ(owner.get()[0], std::byte{'b'});
  // The mapping does not need the name any more.
  std::filesystem::remove(folder / "file");
  EXPECT_EQ(owner.get()[1], std::byte{'y'});
}

TEST(MappedFile, TakesAnEmptyFile) {
  const TemporaryFolder folder;
  write_text(folder / "empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

TEST(MappedFile, NamesWhatItCannotMap) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { MappedFile(folder / "missing"); }),
              AllOf(HasSubstr(folder / "missing"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { MappedFile(folder.path()); }),
              AllOf(HasSubstr(folder.path()), HasSubstr("not a regular file")));
  EXPECT_THAT(error_of([&] { MappedFile("/dev/null"); }), HasSubstr("not a regular file"));
}

TEST(WriteAll, WritesAndNamesWhatItCannotWrite) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT, 0666);
  ASSERT_GE(fd, 0);
  write_all(fd, path, "one ");
  write_all(fd, path, "two");
  close(fd);
  EXPECT_EQ(read_file(path), "one two");
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  EXPECT_THAT(error_of([&] { write_all(full, "the path", "x"); }),
              AllOf(HasSubstr("the path"), HasSubstr("No space left")));
  close(full);
}

}  // namespace
}  // namespace dcformer
