// File contents on disk: one file per id in one folder, written once and never changed.
//
// A content belongs to the database's row of the same id. It is durable (fsync of file and folder)
// before the row is committed, and it goes after the row; so a crash can leave a content without a
// row, never a row without its content. sweep() removes the former when the server starts.
// Thread-safety: FileFolder is immutable; a FileWriter belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/store/file_budget.h"

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

 private:
  int fd_ = -1;
};

class FileWriter {
 public:
  ~FileWriter();  // discards what was not kept
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  const std::string& id() const { return id_; }
  uint64_t bytes() const { return bytes_; }

  // kOutOfRange beyond its size, kInvalidArgument and kResourceExhausted as its claim says,
  // kResourceExhausted and kUnavailable when the disk refuses. A writer that failed once fails for
  // good.
  Status append(std::string_view bytes);
  // Hands what was appended to the system, so that what refuses it does so now.
  Status flush();
  // Makes the content durable.
  Status sync();
  // Whether the content stays; the first call decides.
  void keep();
  void discard();

 private:
  friend class FileFolder;
  FileWriter(std::string folder, std::string id, OwnedFd fd, uint64_t max_bytes,
             std::unique_ptr<FileClaim> claim);

  std::string folder_;
  std::string id_;
  OwnedFd fd_;
  uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  std::string buffer_;
  std::unique_ptr<FileClaim> claim_;
  Status failure_;
  bool settled_ = false;
};

class FileFolder {
 public:
  explicit FileFolder(std::string path) : path_(std::move(path)) {}

  // A new id and its empty content, for which there is room as `claim` says.
  Result<std::unique_ptr<FileWriter>> create(uint64_t max_bytes,
                                             std::unique_ptr<FileClaim> claim) const;
  // For reading. `id` is one that the store made; a broken invariant otherwise.
  Result<OwnedFd> open(const std::string& id) const;
  void remove(const std::string& id) const;
  // Removes every content that is not `known`. Only while no other process uses the folder.
  Status sweep(const std::function<bool(const std::string& id)>& known) const;

 private:
  std::string path_of(const std::string& id) const;

  std::string path_;
};

// Reads up to `bytes` from `offset`; short only at the file's end.
Result<std::string> read_part(const OwnedFd& fd, uint64_t offset, size_t bytes);

}  // namespace skein
