// A model of a few hundred kilobytes, for tests that need a real one but not its answers.
#pragma once

#include <string>

namespace skein {

inline std::string golden_model_path() {
  return SKEIN_SOURCE_DIR "/build/goldens/llama";
}

}  // namespace skein
