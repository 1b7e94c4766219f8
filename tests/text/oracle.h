// Runs tests/text/hf_oracle.py and reads what it wrote. Tests skip, saying so, where the Python
// environment is not there.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/needs.h"

namespace skein::testing {

inline const std::string kPython = SKEIN_SOURCE_DIR "/build/venv/bin/python";

inline bool has_python() {
  return std::filesystem::exists(kPython);
}

#define SKEIN_NEEDS_PYTHON()                  \
  SKEIN_NEEDS(::skein::testing::has_python(), \
              ::skein::testing::kPython + " is not there; tools/python_env.sh makes it")

// The exit status of the oracle, called with `arguments`.
inline int run_oracle(const std::string& arguments) {
  const std::string script = SKEIN_SOURCE_DIR "/tests/text/hf_oracle.py";
  return std::system(("'" + kPython + "' '" + script + "' " + arguments).c_str());
}

// The JSON values of a file, one a line.
inline std::vector<nlohmann::json> read_lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace skein::testing
