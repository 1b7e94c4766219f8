#include "base/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace skein {
namespace {

int64_t modified_ns(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

int native_advice(MappedFile::Advice advice) {
  switch (advice) {
    case MappedFile::Advice::kSequential:
      return MADV_SEQUENTIAL;
    case MappedFile::Advice::kRandom:
      return MADV_RANDOM;
    case MappedFile::Advice::kWillNeed:
      return MADV_WILLNEED;
    case MappedFile::Advice::kDontNeed:
      return MADV_DONTNEED;
    case MappedFile::Advice::kNormal:
      break;
  }
  return MADV_NORMAL;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  MappedFile file;
  file.path_ = path;
  // O_NONBLOCK: opening a named pipe must fail below, not wait for a writer.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return not_found("{}: no such file", path);
    return invalid_argument("{}: cannot be opened: {}", path, std::strerror(error));
  }
  struct stat info {};
  if (::fstat(file.fd_, &info) != 0) {
    return invalid_argument("{}: cannot be examined: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return invalid_argument("{}: not a regular file", path);
  file.modified_ns_ = modified_ns(info);
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return file;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd_, 0);
  if (data == MAP_FAILED) {
    return invalid_argument("{}: {} bytes cannot be mapped: {}", path, size, std::strerror(errno));
  }
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      modified_ns_(other.modified_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  fd_ = std::exchange(other.fd_, -1);
  modified_ns_ = other.modified_ns_;
  return *this;
}

MappedFile::~MappedFile() {
  close();
}

void MappedFile::close() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
  data_ = nullptr;
  size_ = 0;
  fd_ = -1;
}

void MappedFile::advise(Advice advice, std::span<const std::byte> part) const {
  const auto base = reinterpret_cast<uintptr_t>(data_);
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  if (part.empty() || begin < base || begin - base > size_ ||
      part.size() > size_ - (begin - base)) {
    return;
  }
  // madvise takes whole pages; the mapping itself starts on one, so rounding down stays inside it.
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t offset = begin - base;
  const size_t start = offset / page * page;
  (void)::madvise(const_cast<std::byte*>(data_) + start, offset - start + part.size(),
                  native_advice(advice));
}

Status MappedFile::check_unchanged() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) {
    return data_loss("{}: cannot be examined: {}", path_, std::strerror(errno));
  }
  if (static_cast<size_t>(info.st_size) != size_) {
    return data_loss("{}: had {} bytes when it was opened and has {} now", path_, size_,
                     info.st_size);
  }
  if (modified_ns(info) != modified_ns_) {
    return data_loss("{}: was written to while it was in use", path_);
  }
  return ok_status();
}

}  // namespace skein
