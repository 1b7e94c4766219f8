// The seccomp half of sandbox.h.
#pragma once

#include "base/status.h"

namespace skein {

// Refuses what sandbox_syscalls.def names, on the calling thread and what it starts; needs
// PR_SET_NO_NEW_PRIVS. False: this kernel or processor has no such filters.
Result<bool> deny_syscalls();

}  // namespace skein
