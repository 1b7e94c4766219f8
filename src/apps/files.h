// Whole files, for commands.
#pragma once

#include <string>

#include "base/status.h"

namespace skein::apps {

// kNotFound or kDataLoss, naming the path.
Result<std::string> read_file(const std::string& path);
// Standard input to its end.
Result<std::string> read_stdin();

}  // namespace skein::apps
