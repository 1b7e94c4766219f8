// Where skein keeps its state unless --state-dir says otherwise.
#pragma once

#include <string>

namespace skein::apps {

// ${XDG_STATE_HOME:-~/.local/state}/skein; empty when neither variable is set.
std::string default_state_dir();

}  // namespace skein::apps
