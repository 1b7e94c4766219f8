// A file mapped read-only into memory: opening costs nothing per byte, and only what is read is
// paged in.
//
// Ownership: move-only; the bytes live as long as the object. Thread-safety: const members may be
// called from any thread.
//
// A mapping cannot be made safe against somebody who shortens the file while it is mapped: reading
// a page that is gone raises SIGBUS, and the process ends. What is done about it: only regular
// files are mapped, the descriptor stays open so that replacing the file by rename (what downloads
// and package managers do) changes nothing here, and `check_unchanged` lets a loader that has read
// or copied from the mapping notice a file that was written over meanwhile. Whoever may write to a
// model file must replace it, not edit it in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace skein {

class MappedFile {
 public:
  enum class Advice : uint8_t { kNormal, kSequential, kRandom, kWillNeed, kDontNeed };

  // Errors: kNotFound when there is no such file, kInvalidArgument when it is no regular file or
  // may not be read. An empty file maps to an empty span.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // A hint to the kernel for a part of bytes(); parts outside of it are ignored.
  void advise(Advice advice, std::span<const std::byte> part) const;

  // kDataLoss when the file's size or modification time is no longer that of the moment of open().
  Status check_unchanged() const;

 private:
  MappedFile() = default;
  void close();

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
  int64_t modified_ns_ = 0;
};

}  // namespace skein
