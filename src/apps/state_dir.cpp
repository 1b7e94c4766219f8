#include "apps/state_dir.h"

#include <cstdlib>

namespace skein::apps {

std::string default_state_dir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  // The XDG specification: a relative path is as good as none.
  if (state != nullptr && state[0] == '/') return std::string(state) + "/skein";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] == '\0') return {};
  return std::string(home) + "/.local/state/skein";
}

}  // namespace skein::apps
