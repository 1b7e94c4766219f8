#include "base/sandbox.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace skein {
namespace {

// --- files: Landlock ---

// The kernel's interface as <linux/landlock.h> has it; what a build machine's headers know must not
// decide about what the kernel that runs the binary can do.
constexpr uint64_t kExecute = 1ULL << 0;
constexpr uint64_t kWriteFile = 1ULL << 1;
constexpr uint64_t kReadFile = 1ULL << 2;
constexpr uint64_t kReadFolder = 1ULL << 3;
constexpr uint64_t kRemoveFolder = 1ULL << 4;
constexpr uint64_t kRemoveFile = 1ULL << 5;
constexpr uint64_t kMakeFolder = 1ULL << 7;
constexpr uint64_t kMakeFile = 1ULL << 8;
constexpr uint64_t kOfAbi1 = (1ULL << 13) - 1;
constexpr uint64_t kRefer = 1ULL << 13;        // from ABI 2: renames between folders
constexpr uint64_t kTruncate = 1ULL << 14;     // from ABI 3
constexpr uint64_t kDeviceIoctl = 1ULL << 15;  // from ABI 5
constexpr uint64_t kConnectTcp = 1ULL << 1;    // from ABI 4
constexpr uint64_t kSignals = 1ULL << 1;       // from ABI 6: only to processes of the sandbox

constexpr uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate | kDeviceIoctl;
constexpr uint64_t kReading = kReadFile | kReadFolder;
constexpr uint64_t kWriting = kReading | kWriteFile | kRemoveFolder | kRemoveFile | kMakeFolder |
                              kMakeFile | kRefer | kTruncate;

constexpr uint64_t kControlling = kReading | kWriteFile | kTruncate | kDeviceIoctl;

struct RulesetAttributes {
  uint64_t files = 0;
  uint64_t network = 0;
  uint64_t scoped = 0;
};

struct [[gnu::packed]] BelowPathAttributes {
  uint64_t allowed = 0;
  int32_t parent_fd = -1;
};

constexpr unsigned int kAskVersion = 1;
constexpr int kBelowPath = 1;
constexpr int kOfPort = 2;  // from ABI 4

struct PortAttributes {
  uint64_t allowed = 0;
  uint64_t port = 0;
};

// 0 where there is none.
int landlock_abi() {
  const long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kAskVersion);
  return abi < 0 ? 0 : static_cast<int>(abi);
}

// All that the kernel can refuse. Its attributes have grown; older kernels take zeros at the end.
RulesetAttributes attributes_of(int abi) {
  RulesetAttributes attributes;
  attributes.files = kOfAbi1;
  if (abi >= 2) attributes.files |= kRefer;
  if (abi >= 3) attributes.files |= kTruncate;
  if (abi >= 4) attributes.network = kConnectTcp;
  if (abi >= 5) attributes.files |= kDeviceIoctl;
  if (abi >= 6) attributes.scoped = kSignals;
  return attributes;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status allow(int ruleset, const std::string& path, uint64_t rights) {
  const Descriptor target(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (target.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return {};
    return internal_error("sandbox: {}: {}", path, std::strerror(errno));
  }
  struct stat info = {};
  if (::fstat(target.get(), &info) != 0) {
    return internal_error("sandbox: {}: {}", path, std::strerror(errno));
  }
  BelowPathAttributes rule;
  rule.allowed = S_ISDIR(info.st_mode) ? rights : rights & kOfFiles;
  rule.parent_fd = target.get();
  if (::syscall(SYS_landlock_add_rule, ruleset, kBelowPath, &rule, 0) == 0) return {};
  return internal_error("sandbox: Landlock refused the rule for {}: {}", path,
                        std::strerror(errno));
}

Status restrict_files(const SandboxRules& rules, int abi) {
  const RulesetAttributes attributes = attributes_of(abi);
  const Descriptor ruleset(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0)));
  if (ruleset.get() < 0) {
    return internal_error("sandbox: Landlock refused its rules: {}", std::strerror(errno));
  }
  for (const std::string& path : rules.read) {
    SKEIN_TRY(allow(ruleset.get(), path, kReading & attributes.files));
  }
  for (const std::string& path : rules.write) {
    SKEIN_TRY(allow(ruleset.get(), path, kWriting & attributes.files));
  }
  for (const std::string& path : rules.devices) {
    SKEIN_TRY(allow(ruleset.get(), path, kControlling & attributes.files));
  }
  for (const uint16_t port :
       attributes.network == 0 ? std::vector<uint16_t>() : rules.connect_ports) {
    const PortAttributes rule{kConnectTcp, port};
    if (::syscall(SYS_landlock_add_rule, ruleset.get(), kOfPort, &rule, 0) == 0) continue;
    return internal_error("sandbox: Landlock refused the rule for port {}: {}", port,
                          std::strerror(errno));
  }
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) == 0) return {};
  return internal_error("sandbox: Landlock refused to begin: {}", std::strerror(errno));
}

// The threads of this process; 0 where /proc is not mounted.
size_t count_threads() {
  std::error_code error;
  const std::filesystem::directory_iterator tasks("/proc/self/task", error);
  return error ? 0 : static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// --- system calls: seccomp ---

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
constexpr uint32_t kForeignCalls = 0x40000000;  // x32 numbers its calls from here
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
constexpr uint32_t kForeignCalls = 0;
#else
constexpr uint32_t kArchitecture = 0;  // no filter
constexpr uint32_t kForeignCalls = 0;
#endif

constexpr uint32_t kNumber = offsetof(seccomp_data, nr);
constexpr uint32_t kArch = offsetof(seccomp_data, arch);
// The lower half of an argument, on machines that store it first.
constexpr uint32_t argument(size_t index) {
  return static_cast<uint32_t>(offsetof(seccomp_data, args) + index * sizeof(uint64_t));
}

constexpr uint32_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

constexpr uint32_t fail_with(int error) {
  return SECCOMP_RET_ERRNO | static_cast<uint32_t>(error);
}

class FilterBuilder {
 public:
  // Calls of another architecture end the process, so that their numbers cannot be taken for ours.
  FilterBuilder() {
    load(kArch);
    when(BPF_JEQ, kArchitecture, 1, 0);
    give(SECCOMP_RET_KILL_PROCESS);
    load(kNumber);
    if (kForeignCalls != 0) {
      when(BPF_JGE, kForeignCalls, 0, 1);
      give(fail_with(EPERM));
    }
  }

  void fail(long call, int error) {
    when(BPF_JEQ, static_cast<uint32_t>(call), 0, 1);
    give(fail_with(error));
  }

  // `test` is BPF_JEQ or BPF_JSET on the lower 32 bits of the argument.
  void fail_where(long call, size_t index, uint16_t test, uint32_t value) {
    when(BPF_JEQ, static_cast<uint32_t>(call), 0, 4);
    load(argument(index));
    when(test, value, 0, 1);
    give(fail_with(EPERM));
    give(SECCOMP_RET_ALLOW);
  }

  std::vector<sock_filter> done() && {
    give(SECCOMP_RET_ALLOW);
    return std::move(code_);
  }

 private:
  void load(uint32_t offset) { code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); }
  void give(uint32_t action) { code_.push_back(BPF_STMT(BPF_RET | BPF_K, action)); }
  void when(uint16_t test, uint32_t value, uint8_t skip_if_true, uint8_t skip_if_false) {
    const auto code = static_cast<uint16_t>(BPF_JMP | test | BPF_K);
    code_.push_back(BPF_JUMP(code, value, skip_if_true, skip_if_false));
  }

  std::vector<sock_filter> code_;
};

// False where there are no filters.
Result<bool> install(std::vector<sock_filter> code, unsigned int flags) {
  if (kArchitecture == 0) return false;
  const sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
  const long result = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  if (result == 0) return true;
  if (result > 0) return internal_error("thread {} cannot take the system call filter", result);
  // EPERM: the sandbox that we run in, a container's, allows none of our own.
  if (errno == ENOSYS || errno == EINVAL || errno == EPERM) return false;
  return internal_error("the system call filter was refused: {}", std::strerror(errno));
}

// Refuses what sandbox_syscalls.def names, on the calling thread and what it starts; needs
// PR_SET_NO_NEW_PRIVS. False: this kernel or processor has no such filters.
Result<bool> deny_syscalls() {
  FilterBuilder filter;
#define SKEIN_DENY(name) filter.fail(SYS_##name, EPERM);
#include "base/sandbox_syscalls.def"
#undef SKEIN_DENY
  filter.fail_where(SYS_clone, 0, BPF_JSET, kNewNamespaces);
  // A filter cannot see its flags, which lie in memory; the C library then takes clone().
  filter.fail(SYS_clone3, ENOSYS);
  filter.fail_where(SYS_ioctl, 1, BPF_JEQ, TIOCSTI);  // types into the terminal that started us
  return install(std::move(filter).done(), 0);
}

}  // namespace

std::string SandboxReport::to_string() const {
  const std::string files =
      landlock_abi == 0  ? "files are open, since this kernel has no Landlock"
      : landlock_abi < 4 ? fmt::format("files by Landlock (ABI {})", landlock_abi)
                         : fmt::format("files and connections by Landlock (ABI {})", landlock_abi);
  return files + (has_syscall_filter ? ", system calls by seccomp"
                                     : ", system calls are open, since this kernel has no seccomp");
}

Result<SandboxReport> enter_sandbox(const SandboxRules& rules) {
  if (const size_t threads = count_threads(); threads > 1) {
    return internal_error("sandbox: {} threads, of which it would hold one", threads);
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return internal_error("sandbox: PR_SET_NO_NEW_PRIVS was refused: {}", std::strerror(errno));
  }
  SandboxReport report;
  report.landlock_abi = landlock_abi();
  if (report.landlock_abi > 0) SKEIN_TRY(restrict_files(rules, report.landlock_abi));
  SKEIN_ASSIGN(report.has_syscall_filter, deny_syscalls());
  return report;
}

bool is_hidden_by_sandbox(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  // access() asks for the modes alone.
  return file.get() < 0 && errno == EACCES && ::access(path.c_str(), R_OK) == 0;
}

Status forbid_new_sockets(Sockets left) {
  FilterBuilder filter;
  for (const long call : {SYS_bind, SYS_listen}) filter.fail(call, EPERM);
  if (left == Sockets::kNone) {
    for (const long call : {SYS_socket, SYS_connect}) filter.fail(call, EPERM);
  }
  return install(std::move(filter).done(), SECCOMP_FILTER_FLAG_TSYNC).status();
}

}  // namespace skein
