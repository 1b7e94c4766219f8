#include "server/store/file_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/folder.h"
#include "base/log.h"
#include "server/store/random.h"

namespace skein {
namespace {

constexpr size_t kBufferBytes = size_t{256} * 1024;
constexpr std::string_view kPrefix = "file-";
constexpr size_t kIdBytes = 12;

bool is_file_id(std::string_view id) {
  return id.size() == kPrefix.size() + 2 * kIdBytes && id.starts_with(kPrefix) &&
         std::all_of(id.begin() + kPrefix.size(), id.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Status disk_error(std::string_view what, std::string_view id) {
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return {full ? Code::kResourceExhausted : Code::kUnavailable,
          fmt::format("store: {} {} failed: {}", what, id, std::strerror(error))};
}

Status sync_folder(const std::string& folder) {
  const OwnedFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) return disk_error("fsync of the folder of", "files");
  return {};
}

}  // namespace

OwnedFd::OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) ::close(fd_);
}

FileWriter::FileWriter(std::string folder, std::string id, OwnedFd fd, uint64_t max_bytes,
                       std::unique_ptr<FileClaim> claim)
    : folder_(std::move(folder)),
      id_(std::move(id)),
      fd_(std::move(fd)),
      max_bytes_(max_bytes),
      claim_(std::move(claim)) {}

FileWriter::~FileWriter() {
  discard();
}

void FileWriter::discard() {
  if (!settled_) ::unlink((folder_ + "/" + id_).c_str());
  settled_ = true;
  claim_.reset();
}

void FileWriter::keep() {
  if (!settled_) claim_->keep();
  settled_ = true;
}

Status FileWriter::append(std::string_view bytes) {
  SKEIN_TRY(failure_);
  if (bytes.size() > max_bytes_ - bytes_) {
    failure_ = out_of_range("the file has more than {} bytes, the most that is taken", max_bytes_);
    return failure_;
  }
  bytes_ += bytes.size();
  buffer_ += bytes;
  return buffer_.size() < kBufferBytes ? Status{} : flush();
}

Status FileWriter::flush() {
  if (failure_.ok() && !buffer_.empty()) failure_ = claim_->grow(buffer_.size());
  std::string_view rest = buffer_;
  while (!rest.empty() && failure_.ok()) {
    const ssize_t count = ::write(fd_.get(), rest.data(), rest.size());
    if (count > 0) {
      rest.remove_prefix(static_cast<size_t>(count));
    } else if (errno != EINTR) {
      failure_ = disk_error("writing", id_);
    }
  }
  buffer_.clear();
  return failure_;
}

Status FileWriter::sync() {
  SKEIN_TRY(flush());
  if (::fsync(fd_.get()) != 0) failure_ = disk_error("fsync of", id_);
  SKEIN_TRY(failure_);
  failure_ = sync_folder(folder_);
  return failure_;
}

Result<std::unique_ptr<FileWriter>> FileFolder::create(uint64_t max_bytes,
                                                       std::unique_ptr<FileClaim> claim) const {
  const std::string id = std::string(kPrefix) + random_hex(kIdBytes);
  OwnedFd fd(
      ::open(path_of(id).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) return disk_error("creating", id);
  return std::unique_ptr<FileWriter>(
      new FileWriter(path_, id, std::move(fd), max_bytes, std::move(claim)));
}

Result<OwnedFd> FileFolder::open(const std::string& id) const {
  OwnedFd fd(::open(path_of(id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() >= 0) return fd;
  if (errno == ENOENT) return data_loss("store: the content of {} is gone", id);
  return disk_error("opening", id);
}

void FileFolder::remove(const std::string& id) const {
  if (::unlink(path_of(id).c_str()) != 0 && errno != ENOENT) {
    log_warning("{}", disk_error("removing", id).message());
  }
}

Status FileFolder::sweep(const std::function<bool(const std::string& id)>& known) const {
  std::vector<std::string> orphans;
  SKEIN_ASSIGN(const auto entries, entries_of(path_));
  for (const std::filesystem::path& entry : entries) {
    const std::string name = entry.filename().string();
    if (is_file_id(name) && !known(name)) orphans.push_back(name);
  }
  for (const std::string& id : orphans) remove(id);
  if (!orphans.empty()) log_info("store: removed {} unfinished files", orphans.size());
  return {};
}

std::string FileFolder::path_of(const std::string& id) const {
  SKEIN_CHECK(is_file_id(id), "'{}' is no file id", id);
  return path_ + "/" + id;
}

Result<std::string> read_part(const OwnedFd& fd, uint64_t offset, size_t bytes) {
  std::string part(bytes, '\0');
  size_t have = 0;
  while (have < bytes) {
    const ssize_t count =
        ::pread(fd.get(), part.data() + have, bytes - have, static_cast<off_t>(offset + have));
    if (count == 0) break;
    if (count > 0) {
      have += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      return disk_error("reading", "a file");
    }
  }
  part.resize(have);
  return part;
}

}  // namespace skein
