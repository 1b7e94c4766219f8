// Preloaded into a process: writes down, in order, what it does to the files below RECORD_ROOT and
// what it says on stdout. power_loss_test.py plays every beginning of that back.
//
// A record is {u8 what, u16 bytes of the path, u64 offset, u32 bytes of data}, the path, the data.
#undef _FORTIFY_SOURCE  // its inline functions would be in the way of ours
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unordered_map>

namespace {

struct Recorder {
  std::mutex mutex;
  std::string root;
  int log = -1;
  std::unordered_map<int, std::string> names;  // of open files

  Recorder() {
    const char* folder = std::getenv("RECORD_ROOT");
    const char* file = std::getenv("RECORD_FILE");
    if (folder == nullptr || file == nullptr) return;
    root = folder;
    log = static_cast<int>(
        ::syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }

  void note(char what, std::string_view name, uint64_t offset = 0, std::string_view data = {}) {
    std::string record(1, what);
    const auto add = [&record](auto number) {
      record.append(reinterpret_cast<const char*>(&number), sizeof(number));
    };
    add(static_cast<uint16_t>(name.size()));
    add(offset);
    add(static_cast<uint32_t>(data.size()));
    record.append(name).append(data);
    for (std::string_view rest = record; !rest.empty();) {
      const long done = ::syscall(SYS_write, log, rest.data(), rest.size());
      if (done < 0) std::abort();
      rest.remove_prefix(static_cast<size_t>(done));
    }
  }

  // The name below the root, "." for the root itself; empty for what is not recorded.
  std::string name_of(std::string_view path) const {
    if (log < 0 || !path.starts_with(root)) return {};
    path.remove_prefix(root.size());
    if (path.empty()) return ".";
    if (path.front() != '/') return {};
    for (const char* kept : {"-shm", "server.lock", "ballast"}) {
      if (path.ends_with(kept)) return {};
    }
    return std::string(path.substr(1));
  }
  std::string name_of(int fd) const {
    const auto found = names.find(fd);
    return found == names.end() ? std::string() : found->second;
  }
};

// Never destroyed: the process writes until its very end.
Recorder& recorder() {
  static auto* one = new Recorder;
  return *one;
}

// Runs a call and what is noted of it as one, and gives the call's errno back.
template <class Call, class Note>
long recorded(const Call& call, const Note& note) {
  const std::lock_guard lock(recorder().mutex);
  const long result = call();
  const int error = errno;
  if (result >= 0) note(result);
  errno = error;
  return result;
}

int open_any(const char* path, int flags, mode_t mode) {
  const std::string name = recorder().name_of(std::string_view(path));
  return static_cast<int>(recorded(
      [&] {
        struct stat info = {};
        if (!name.empty() && (flags & O_CREAT) != 0 && ::lstat(path, &info) != 0) {
          const long fd = ::syscall(SYS_openat, AT_FDCWD, path, flags, mode);
          if (fd >= 0) recorder().note('c', name);
          return fd;
        }
        return ::syscall(SYS_openat, AT_FDCWD, path, flags, mode);
      },
      [&](long fd) {
        recorder().names.erase(static_cast<int>(fd));
        if (!name.empty()) recorder().names[static_cast<int>(fd)] = name;
      }));
}

ssize_t pwrite_any(int fd, const void* data, size_t bytes, off_t at) {
  return recorded([&] { return ::syscall(SYS_pwrite64, fd, data, bytes, at); },
                  [&](long done) {
                    const std::string name = recorder().name_of(fd);
                    if (name.empty()) return;
                    recorder().note('w', name, static_cast<uint64_t>(at),
                                    {static_cast<const char*>(data), static_cast<size_t>(done)});
                  });
}

int truncate_any(int fd, off_t size) {
  return static_cast<int>(recorded([&] { return ::syscall(SYS_ftruncate, fd, size); },
                                   [&](long) {
                                     const std::string name = recorder().name_of(fd);
                                     if (!name.empty()) {
                                       recorder().note('t', name, static_cast<uint64_t>(size));
                                     }
                                   }));
}

int sync_any(long number, int fd) {
  return static_cast<int>(recorded([&] { return ::syscall(number, fd); },
                                   [&](long) {
                                     const std::string name = recorder().name_of(fd);
                                     if (!name.empty()) recorder().note('s', name);
                                   }));
}

}  // namespace

extern "C" {

#define RECORD_OPEN(function)                      \
  int function(const char* path, int flags, ...) { \
    mode_t mode = 0;                               \
    if ((flags & O_CREAT) != 0) {                  \
      va_list more;                                \
      va_start(more, flags);                       \
      mode = va_arg(more, mode_t);                 \
      va_end(more);                                \
    }                                              \
    return open_any(path, flags, mode);            \
  }
RECORD_OPEN(open)
RECORD_OPEN(open64)

int close(int fd) {
  return static_cast<int>(
      recorded([&] { return recorder().names.erase(fd), ::syscall(SYS_close, fd); }, [](long) {}));
}

ssize_t write(int fd, const void* data, size_t bytes) {
  off_t at = 0;
  return recorded(
      [&] {
        if (!recorder().name_of(fd).empty()) at = ::lseek(fd, 0, SEEK_CUR);
        return ::syscall(SYS_write, fd, data, bytes);
      },
      [&](long done) {
        const std::string_view said(static_cast<const char*>(data), static_cast<size_t>(done));
        const std::string name = recorder().name_of(fd);
        if (!name.empty()) recorder().note('w', name, static_cast<uint64_t>(at), said);
        if (fd == STDOUT_FILENO && recorder().log >= 0) recorder().note('a', "", 0, said);
      });
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
  return pwrite_any(fd, data, bytes, at);
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t at) {
  return pwrite_any(fd, data, bytes, at);
}
int ftruncate(int fd, off_t size) noexcept {
  return truncate_any(fd, size);
}
int ftruncate64(int fd, off64_t size) noexcept {
  return truncate_any(fd, size);
}
int fsync(int fd) {
  return sync_any(SYS_fsync, fd);
}
int fdatasync(int fd) {
  return sync_any(SYS_fdatasync, fd);
}

int unlink(const char* path) noexcept {
  return static_cast<int>(recorded([&] { return ::syscall(SYS_unlink, path); },
                                   [&](long) {
                                     const std::string name =
                                         recorder().name_of(std::string_view(path));
                                     if (!name.empty()) recorder().note('u', name);
                                   }));
}

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(
      recorded([&] { return ::syscall(SYS_rename, from, to); },
               [&](long) {
                 const std::string name = recorder().name_of(std::string_view(from));
                 if (!name.empty())
                   recorder().note('r', name, 0, recorder().name_of(std::string_view(to)));
               }));
}

int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(recorded([&] { return ::syscall(SYS_mkdir, path, mode); },
                                   [&](long) {
                                     const std::string name =
                                         recorder().name_of(std::string_view(path));
                                     if (!name.empty()) recorder().note('m', name);
                                   }));
}

}  // extern "C"
