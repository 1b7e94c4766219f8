// Rights that a process gives up for good, and with it all that it starts. No privilege is needed.
//
//   SKEIN_ASSIGN(SandboxReport report, enter_sandbox({.read = {"/models"}, .write = {state_dir}}));
//   ... listen ...
//   SKEIN_TRY(forbid_new_sockets());
//
// Landlock keeps files beyond the rules from being opened and TCP connections from being made; what
// is open already stays so. A seccomp filter makes system calls fail (EPERM) that reach other
// processes, more privilege or rarely used parts of the kernel (sandbox_syscalls.def). Where the
// kernel lacks one of the two, the other is still in force, and the report says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace skein {

// Files, or folders with everything below them. Links are followed when the rules come into force.
// A path that does not exist then is left out.
struct SandboxRules {
  std::vector<std::string> read = {};
  std::vector<std::string> write = {};       // also to read, create, rename and delete
  std::vector<std::string> devices = {};     // to read, write and control
  std::vector<uint16_t> connect_ports = {};  // of TCP connections that may be made
};

struct SandboxReport {
  int landlock_abi = 0;  // 0: the kernel has none, or it is switched off
  bool has_syscall_filter = false;

  // "files and connections by Landlock (ABI 7), system calls by seccomp"
  std::string to_string() const;
};

// For the calling thread and what it starts afterwards; refused where there are other threads.
// Sandboxes add up: a second one can only take away. Fails where a kernel that has the means
// refuses them; some of them may be in force then.
Result<SandboxReport> enter_sandbox(const SandboxRules& rules);

// On all threads: no more socket(), connect(), bind() or listen(); with kConnect, which is for
// those that must connect anew, no more bind() or listen(). What listens goes on accepting. Fine
// where the kernel has no seccomp.
enum class Sockets : uint8_t { kNone, kConnect };
Status forbid_new_sockets(Sockets left = Sockets::kNone);

// Whether it is a sandbox, and not the file's mode, that keeps this process from reading `path`.
bool is_hidden_by_sandbox(const std::string& path);

}  // namespace skein
