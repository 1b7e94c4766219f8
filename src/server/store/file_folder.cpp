#include "server/store/file_folder.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/folder.h"
#include "base/log.h"

namespace skein {
namespace {

constexpr size_t kBufferBytes = size_t{256} * 1024;

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

class DiskWriter final : public FileWriter {
 public:
  DiskWriter(std::string folder, std::string id, OwnedFd fd, uint64_t max_bytes,
             std::unique_ptr<FileClaim> claim)
      : FileWriter(std::move(id), max_bytes, kBufferBytes, std::move(claim)),
        folder_(std::move(folder)),
        fd_(std::move(fd)) {}
  ~DiskWriter() override { discard(); }

 private:
  Status write(std::string_view rest) override {
    while (!rest.empty()) {
      const ssize_t count = ::write(fd_.get(), rest.data(), rest.size());
      if (count > 0) {
        rest.remove_prefix(static_cast<size_t>(count));
      } else if (errno != EINTR) {
        return disk_error("writing", id());
      }
    }
    return {};
  }
  Status make_durable() override {
    if (::fsync(fd_.get()) != 0) return disk_error("fsync of", id());
    return sync_folder(folder_);
  }
  void remove() override { ::unlink((folder_ + "/" + id()).c_str()); }

  const std::string folder_;
  const OwnedFd fd_;
};

class DiskReader final : public FileReader {
 public:
  explicit DiskReader(OwnedFd fd) : fd_(std::move(fd)) {}
  Result<std::string> read(uint64_t offset, size_t bytes) const override {
    return read_part(fd_, offset, bytes);
  }

 private:
  const OwnedFd fd_;
};

}  // namespace

OwnedFd::OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) ::close(fd_);
}

std::unique_ptr<FileReader> reader_of(OwnedFd fd) {
  return std::make_unique<DiskReader>(std::move(fd));
}

Result<std::unique_ptr<FileWriter>> FileFolder::create(uint64_t max_bytes,
                                                       std::unique_ptr<FileClaim> claim) {
  const std::string id = make_file_id();
  OwnedFd fd(
      ::open(path_of(id).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) return disk_error("creating", id);
  return std::unique_ptr<FileWriter>(
      std::make_unique<DiskWriter>(path_, id, std::move(fd), max_bytes, std::move(claim)));
}

Result<std::unique_ptr<FileReader>> FileFolder::open(const std::string& id) {
  OwnedFd fd(::open(path_of(id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() >= 0) return reader_of(std::move(fd));
  if (errno == ENOENT) return data_loss("store: the content of {} is gone", id);
  return disk_error("opening", id);
}

void FileFolder::remove(const std::string& id) {
  if (::unlink(path_of(id).c_str()) != 0 && errno != ENOENT) {
    log_warning("{}", disk_error("removing", id).message());
  }
}

Status FileFolder::sweep(const std::function<bool(const std::string& id)>& known) {
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
