#include "server/store/state_space.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "server/store/file_folder.h"

namespace skein {
namespace {

constexpr uint64_t kMaxBallastBytes = uint64_t{4} << 20;
constexpr uint64_t kBallastShare = 16;

}  // namespace

StateSpace::StateSpace(std::string folder, uint64_t floor_bytes, uint64_t floor_files)
    : folder_(std::move(folder)), floor_bytes_(floor_bytes), floor_files_(floor_files) {
  struct statvfs disk = {};
  if (::statvfs(folder_.c_str(), &disk) == 0) {
    ballast_bytes_ = std::min(kMaxBallastBytes, disk.f_blocks * disk.f_frsize / kBallastShare);
  }
  measure();
}

void StateSpace::measure() {
  struct statvfs disk = {};
  if (::statvfs(folder_.c_str(), &disk) != 0) return;  // what was known stands
  free_bytes_ = disk.f_bavail * disk.f_frsize;
  if (disk.f_files > 0) free_files_ = disk.f_favail;  // 0: this kind of disk has no limit of files
  // Another process, `skein keys revoke`, may have used it.
  has_ballast_ = ::access(ballast_path().c_str(), F_OK) == 0;
}

Status StateSpace::admit(uint64_t bytes) {
  measure();
  if (free_files() < floor_files_) {
    return resource_exhausted(
        "state folder {}: {} more files fit on the disk, and {} must stay free", folder_,
        free_files(), floor_files_);
  }
  const uint64_t free = free_bytes();
  if (free >= bytes && free - bytes >= floor_bytes_) return {};
  return resource_exhausted(
      "state folder {}: {} bytes are free, {} are asked for and {} must stay free", folder_, free,
      bytes, floor_bytes_);
}

void StateSpace::restore_ballast() {
  if (has_ballast_ || ballast_bytes_ == 0 || free_bytes() < 2 * ballast_bytes_) return;
  const OwnedFd fd(
      ::open(ballast_path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) return;
  // Real blocks: a file with a hole would hold nothing back.
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(ballast_bytes_));
      error != 0) {
    ::unlink(ballast_path().c_str());
    log_debug("state folder {}: no ballast: {}", folder_, std::strerror(error));
    return;
  }
  measure();
}

bool StateSpace::release_ballast() {
  if (folder_.empty()) return false;
  const bool released = ::unlink(ballast_path().c_str()) == 0;
  if (released) log_warning("state folder {}: the disk is full, its reserve is in use", folder_);
  measure();
  return released;
}

}  // namespace skein
