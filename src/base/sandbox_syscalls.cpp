#include "base/sandbox_syscalls.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "base/sandbox.h"

namespace skein {
namespace {

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

}  // namespace

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

Status forbid_new_sockets() {
  FilterBuilder filter;
  for (const long call : {SYS_socket, SYS_connect, SYS_bind, SYS_listen}) filter.fail(call, EPERM);
  return install(std::move(filter).done(), SECCOMP_FILTER_FLAG_TSYNC).status();
}

}  // namespace skein
