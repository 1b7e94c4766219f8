// File contents on disk: one file per id in one folder. A content is durable (fsync of file and
// folder) before its row is committed; sweep() removes what a crash left without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "server/store/file_contents.h"

namespace skein {

// A file descriptor that is closed once.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept;
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd();

  int get() const { return fd_; }
  // Closing it is somebody else's from here on.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// What is open stays readable when it is removed meanwhile.
class FileFolder final : public FileContents {
 public:
  explicit FileFolder(std::string path) : path_(std::move(path)) {}

  Result<std::unique_ptr<FileWriter>> create(uint64_t max_bytes,
                                             std::unique_ptr<FileClaim> claim) override;
  Result<std::unique_ptr<FileReader>> open(const std::string& id) override;
  void remove(const std::string& id) override;
  // Removes every content that is not `known`. Only while no other process uses the folder.
  Status sweep(const std::function<bool(const std::string& id)>& known);

 private:
  std::string path_of(const std::string& id) const;

  std::string path_;
};

// Reads up to `bytes` from `offset`; short only at the file's end.
Result<std::string> read_part(const OwnedFd& fd, uint64_t offset, size_t bytes);
// A file that is open already.
std::unique_ptr<FileReader> reader_of(OwnedFd fd);

}  // namespace skein
