// A copy of a state folder, also of one that a server is running on.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace skein {

struct BackupSummary {
  uint64_t files = 0;
  uint64_t bytes = 0;  // of the database and the files
};

// Copies the database as it is at one moment and every file it names. `to` must not exist; it is
// there when all of it is durable, and not before. It can be served from as it is.
// kNotFound: there is no state in `state_dir`. kAlreadyExists: `to` is there.
Result<BackupSummary> back_up(const std::string& state_dir, const std::string& to);

}  // namespace skein
