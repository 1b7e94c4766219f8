#include "base/mapped_file.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace skein {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() { std::filesystem::create_directories(folder_); }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  const std::string folder_ =
      ::testing::TempDir() + "mapped_file_test." + std::to_string(::getpid());
};

TEST_F(MappedFileTest, ShowsTheBytesAndMoves) {
  auto file = MappedFile::open(write("a", "hello"));
  ASSERT_TRUE(file.ok()) << file.message();
  MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.size(), 5u);
  EXPECT_EQ(moved.bytes()[4], std::byte{'o'});
  EXPECT_TRUE(file->bytes().empty());
  moved.advise(MappedFile::Advice::kWillNeed, moved.bytes().subspan(1, 3));
  moved.advise(MappedFile::Advice::kDontNeed, file->bytes());
  EXPECT_TRUE(moved.check_unchanged().ok());
}

TEST_F(MappedFileTest, AnEmptyFileIsAnEmptySpan) {
  const auto file = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFileTest, RefusesWhatIsNoRegularFile) {
  EXPECT_EQ(MappedFile::open(folder_ + "/none").status().code(), Code::kNotFound);
  EXPECT_EQ(MappedFile::open(folder_).message(), folder_ + ": not a regular file");
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(pipe).message(), pipe + ": not a regular file");
}

TEST_F(MappedFileTest, NoticesATruncatedFile) {
  const std::string path = write("a", "hello");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_EQ(::truncate(path.c_str(), 2), 0);
  EXPECT_EQ(file->check_unchanged().message(),
            path + ": had 5 bytes when it was opened and has 2 now");
}

TEST_F(MappedFileTest, AReplacedFileKeepsItsOldBytes) {
  const std::string path = write("a", "hello");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.message();
  std::filesystem::rename(write("b", "hi"), path);
  EXPECT_TRUE(file->check_unchanged().ok());
  EXPECT_EQ(file->bytes()[4], std::byte{'o'});
}

}  // namespace
}  // namespace skein
