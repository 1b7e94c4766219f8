// A library for LD_PRELOAD that fails chosen calls of the process into the system, for tests.
//
// FAULT_SHIM_CONTROL names a file of sizeof(Control) bytes, which the harness maps as well: it
// chooses the class of calls, the first that fails and how many do, and reads how many there were.
// FAULT_SHIM_REPORT names a file to which the stack of every failed call and of a crash is
// appended. Without the first variable nothing is counted and nothing fails. What runs before
// main(), where no program can answer a failure, is left alone.
//
// Nothing here allocates or takes a lock, so that it can stand below malloc in any thread.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// glibc's own, which stay when the public names are taken over.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

namespace {

// In the order of CLASSES in shim.py.
enum Class : uint32_t {
  kAlloc,
  kWrite,
  kSend,
  kSync,
  kAccept,
  kThread,
  kMap,
  kOpen,
  kFile,
  kCount
};

enum Mode : uint64_t { kOff = 0, kCounting = 1, kFailing = 2, kAborting = 3 };

constexpr size_t kClasses = 16;

// Every member is one of the harness's 64-bit words; see WORDS in shim.py.
struct Control {
  std::atomic<uint64_t> mode;
  std::atomic<uint64_t> kind;
  std::atomic<uint64_t> first;  // from 1
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> error;
  std::atomic<uint64_t> failed;
  std::atomic<uint64_t> crashed;  // the signal
  std::atomic<uint64_t> process;
  std::atomic<uint64_t> calls[kClasses];
};

constexpr int kMaxFrames = 64;

Control* control = nullptr;
int report = -1;
__thread bool inside __attribute__((tls_model("initial-exec"))) = false;

using ThreadFunction = void* (*)(void*);
using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, ThreadFunction, void*);
CreateThread real_pthread_create = nullptr;

using Main = int (*)(int, char**, char**);
using StartMain = int (*)(Main, int, char**, Main, void (*)(), void (*)(), void*);
Main real_main = nullptr;
std::atomic<bool> in_main{false};

void write_report(const char* text) {
  (void)syscall(SYS_write, report, text, strlen(text));
}

void write_number(uint64_t value) {
  char digits[24];
  char* at = digits + sizeof(digits);
  *--at = '\0';
  do {
    *--at = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  write_report(at);
}

void write_stack(const char* what, uint64_t number) {
  if (report < 0) return;
  void* frames[kMaxFrames];
  const int depth = backtrace(frames, kMaxFrames);
  write_report(what);
  write_number(number);
  write_report("\n");
  backtrace_symbols_fd(frames, depth, report);
}

// Counts the call; true: it is to fail, and errno says how.
bool fails(Class kind) {
  if (control == nullptr || inside || !in_main) return false;
  const uint64_t mode = control->mode.load(std::memory_order_acquire);
  if (mode == kOff) return false;
  const uint64_t number = control->calls[kind].fetch_add(1) + 1;
  if (mode == kCounting || control->kind != kind) return false;
  const uint64_t first = control->first;
  if (number < first || number - first >= control->count) return false;
  inside = true;
  if (control->failed.fetch_add(1) == 0) write_stack("fault ", number);
  inside = false;
  if (mode == kAborting) abort();
  errno = static_cast<int>(control->error.load());
  return true;
}

// Pipes and events are neither disk nor network: what they are for cannot fail.
bool write_fails(int file) {
  if (control == nullptr || inside || control->mode == kOff) return false;
  struct stat status = {};
  if (fstat(file, &status) != 0) return false;
  if (S_ISSOCK(status.st_mode)) return fails(kSend);
  return S_ISREG(status.st_mode) && fails(kWrite);
}

void on_crash(int signal, siginfo_t*, void*) {
  inside = true;
  if (control != nullptr) control->crashed = static_cast<uint64_t>(signal);
  write_stack("crash ", static_cast<uint64_t>(signal));
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  raise(signal);
}

void catch_crashes() {
  void* frames[1];
  (void)backtrace(frames, 1);  // loads the unwinder, which allocates
  struct sigaction action = {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE}) {
    sigaction(signal, &action, nullptr);
  }
}

__attribute__((constructor)) void start() {
  real_pthread_create = reinterpret_cast<CreateThread>(dlsym(RTLD_NEXT, "pthread_create"));
  const char* path = getenv("FAULT_SHIM_CONTROL");
  if (path == nullptr) return;
  const auto file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (file < 0) return;
  const long mapped =
      syscall(SYS_mmap, nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  syscall(SYS_close, file);
  if (mapped == -1) return;
  if (const char* stacks = getenv("FAULT_SHIM_REPORT"); stacks != nullptr) {
    report = static_cast<int>(
        syscall(SYS_openat, AT_FDCWD, stacks, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  }
  catch_crashes();
  auto* shared = reinterpret_cast<Control*>(mapped);
  shared->process = static_cast<uint64_t>(getpid());
  control = shared;
}

int counted_main(int count, char** arguments, char** environment) {
  in_main = true;
  return real_main(count, arguments, environment);
}

bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  if (fails(kOpen)) return -1;
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

mode_t mode_of(int flags, va_list& more) {
  return takes_mode(flags) ? va_arg(more, mode_t) : 0;
}

}  // namespace

extern "C" {

int __libc_start_main(Main main, int count, char** arguments, Main init, void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  real_main = main;
  const auto real = reinterpret_cast<StartMain>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(counted_main, count, arguments, init, fini, rtld_fini, stack_end);
}

void* malloc(size_t bytes) {
  return fails(kAlloc) ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return fails(kAlloc) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* block, size_t bytes) {
  return fails(kAlloc) ? nullptr : __libc_realloc(block, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  return fails(kAlloc) ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return fails(kAlloc) ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  if (fails(kAlloc)) return ENOMEM;
  void* found = __libc_memalign(alignment, bytes);
  if (found == nullptr) return ENOMEM;
  *block = found;
  return 0;
}

ssize_t write(int file, const void* data, size_t bytes) {
  return write_fails(file) ? -1 : syscall(SYS_write, file, data, bytes);
}
ssize_t writev(int file, const iovec* parts, int count) {
  return write_fails(file) ? -1 : syscall(SYS_writev, file, parts, count);
}
ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t offset) {
  return write_fails(file) ? -1 : syscall(SYS_pwrite64, file, data, bytes, offset);
}
ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  return pwrite64(file, data, bytes, offset);
}

ssize_t send(int socket, const void* data, size_t bytes, int flags) {
  if (fails(kSend)) return -1;
  return syscall(SYS_sendto, socket, data, bytes, flags, nullptr, 0);
}
ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  return fails(kSend) ? -1 : syscall(SYS_sendmsg, socket, message, flags);
}

int fsync(int file) {
  return fails(kSync) ? -1 : static_cast<int>(syscall(SYS_fsync, file));
}
int fdatasync(int file) {
  return fails(kSync) ? -1 : static_cast<int>(syscall(SYS_fdatasync, file));
}

int accept4(int socket, sockaddr* address, socklen_t* bytes, int flags) {
  if (fails(kAccept)) return -1;
  return static_cast<int>(syscall(SYS_accept4, socket, address, bytes, flags));
}
int accept(int socket, sockaddr* address, socklen_t* bytes) {
  return accept4(socket, address, bytes, 0);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, ThreadFunction function,
                   void* argument) {
  if (fails(kThread)) return EAGAIN;
  return real_pthread_create(thread, attributes, function, argument);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (fails(kMap)) return MAP_FAILED;
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
void* mmap64(void* address, size_t bytes, int protection, int flags, int file, off64_t offset) {
  return mmap(address, bytes, protection, flags, file, offset);
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_at(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_at(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_at(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_at(folder, path, flags, mode);
}
int __open_2(const char* path, int flags) {
  return open_at(AT_FDCWD, path, flags, 0);
}
int __open64_2(const char* path, int flags) {
  return open_at(AT_FDCWD, path, flags, 0);
}
int __openat_2(int folder, const char* path, int flags) {
  return open_at(folder, path, flags, 0);
}

int rename(const char* from, const char* to) {
  return fails(kFile) ? -1 : static_cast<int>(syscall(SYS_rename, from, to));
}
int unlink(const char* path) {
  return fails(kFile) ? -1 : static_cast<int>(syscall(SYS_unlink, path));
}
int mkdir(const char* path, mode_t mode) {
  return fails(kFile) ? -1 : static_cast<int>(syscall(SYS_mkdir, path, mode));
}
int ftruncate64(int file, off64_t bytes) {
  return fails(kFile) ? -1 : static_cast<int>(syscall(SYS_ftruncate, file, bytes));
}
int ftruncate(int file, off_t bytes) {
  return ftruncate64(file, bytes);
}

}  // extern "C"
