// Runs the built binary, as a user would.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <sys/wait.h>

namespace skein::testing {

struct Run {
  int status = -1;
  std::string output;  // stdout and stderr together
};

// `arguments` as the shell takes them; `environment` before the command ("HOME=/x").
inline Run run_skein(const std::string& arguments, const std::string& environment = {}) {
  Run run;
  std::FILE* pipe =
      ::popen((environment + " " SKEIN_BINARY " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return run;
  std::array<char, 4096> buffer;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    run.output.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

}  // namespace skein::testing
