// A model of a few hundred kilobytes, for tests that need a real one but not its answers.
#pragma once

#include <filesystem>
#include <string>

namespace skein {

inline std::string golden_model_path() {
  return SKEIN_SOURCE_DIR "/tests/model/goldens/llama";
}
inline bool golden_model_exists() {
  return std::filesystem::exists(golden_model_path());
}

}  // namespace skein
