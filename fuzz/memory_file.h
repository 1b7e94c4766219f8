// Bytes as a file that has a path, without a disk: what opens models takes paths.
#pragma once

#include <cstdint>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

namespace skein::fuzz {

class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    SKEIN_CHECK(file_ >= 0, "no memory file");
    SKEIN_CHECK(write(file_, data, size) == static_cast<ssize_t>(size), "{} bytes", size);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(file_); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  const int file_;
};

}  // namespace skein::fuzz
