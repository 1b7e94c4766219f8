// Runs tests/text/jinja_oracle.py: what Jinja2 itself makes of a list of cases.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <unistd.h>

#include "base/status.h"

namespace skein::test {

// One {"text": ...} or {"error": ...} per {"template": ..., "context": ...}. Fails where there is
// no Python with Jinja2.
inline Result<nlohmann::json> ask_jinja2(const nlohmann::ordered_json& cases) {
  namespace fs = std::filesystem;
  const fs::path source = SKEIN_SOURCE_DIR;
  const std::string stem =
      (fs::temp_directory_path() / ("skein_oracle_" + std::to_string(getpid())));
  std::ofstream(stem + ".in") << cases.dump();
  nlohmann::json answers;
  for (const fs::path& python : {fs::path("/usr/bin/python3"), source / "build/venv/bin/python"}) {
    if (!fs::exists(python)) continue;
    const std::string command =
        fmt::format("'{}' '{}/tests/text/jinja_oracle.py' <'{}.in' >'{}.out' 2>'{}.err'",
                    python.string(), source.string(), stem, stem, stem);
    if (std::system(command.c_str()) != 0) continue;
    std::ifstream out(stem + ".out");
    answers = nlohmann::json::parse(out, nullptr, false);
    break;
  }
  for (const char* suffix : {".in", ".out", ".err"}) fs::remove(stem + suffix);
  if (!answers.is_array() || answers.size() != cases.size()) {
    return unavailable("no Python with Jinja2 (Debian's python3-jinja2) answers here");
  }
  return answers;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace skein::test
