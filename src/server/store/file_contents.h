// The contents of files, wherever they are: written once and never changed.
//
// A content belongs to the database's row of the same id. It is durable before the row is
// committed, and goes with it or after it; so a crash can leave a content without a row, never a
// row without its content.
// Thread-safety: FileContents any thread; a FileWriter belongs to one thread at a time, and so does
// a FileReader. What writes or reads may wait, for a disk or for the store, so neither is for the
// store's thread nor for an I/O thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/store/file_budget.h"

namespace skein {

class FileWriter {
 public:
  virtual ~FileWriter() = default;  // discards what was not kept
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  const std::string& id() const { return id_; }
  uint64_t bytes() const { return bytes_; }

  // kOutOfRange beyond its size, kInvalidArgument and kResourceExhausted as its claim says,
  // kResourceExhausted and kUnavailable when the disk refuses. A writer that failed once fails for
  // good.
  Status append(std::string_view bytes);
  // Hands what was appended on, so that what refuses it does so now.
  Status flush();
  // Makes the content durable.
  Status sync();
  // Whether the content stays; the first call decides.
  void keep();
  void discard();

 protected:
  FileWriter(std::string id, uint64_t max_bytes, size_t buffer_bytes,
             std::unique_ptr<FileClaim> claim);
  // Writes what has been appended since the last call.
  virtual Status write(std::string_view bytes) = 0;
  virtual Status make_durable() = 0;
  virtual void remove() = 0;

 private:
  const std::string id_;
  const uint64_t max_bytes_;
  const size_t buffer_bytes_;  // write() is called with at least so many, but for flush()
  uint64_t bytes_ = 0;
  std::string buffer_;
  std::unique_ptr<FileClaim> claim_;
  Status failure_;
  bool settled_ = false;
};

class FileReader {
 public:
  virtual ~FileReader() = default;
  // Up to `bytes` from `offset`; short only at the content's end.
  virtual Result<std::string> read(uint64_t offset, size_t bytes) const = 0;
};

class FileContents {
 public:
  virtual ~FileContents() = default;

  // A new id and its empty content, for which there is room as `claim` says.
  virtual Result<std::unique_ptr<FileWriter>> create(uint64_t max_bytes,
                                                     std::unique_ptr<FileClaim> claim) = 0;
  // `id` is one that the store made; a broken invariant otherwise. kDataLoss: it is gone.
  virtual Result<std::unique_ptr<FileReader>> open(const std::string& id) = 0;
  // After the row.
  virtual void remove(const std::string& id) = 0;
};

// "file-" and 24 hexadecimal digits.
std::string make_file_id();
bool is_file_id(std::string_view id);

}  // namespace skein
