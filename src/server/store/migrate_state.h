// A state folder's contents, copied into a store that servers share.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace skein {

struct MigratedState {
  uint64_t rows = 0;
  uint64_t files = 0;
  uint64_t bytes = 0;  // of the files
};

// All of it, or nothing. kNotFound: there is no state in the folder. kAlreadyExists: a server runs
// on it, or the store has something in it. Others as Store::open().
Result<MigratedState> migrate_state(const std::string& state_dir, const std::string& url);

}  // namespace skein
