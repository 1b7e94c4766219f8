// Runs the built binary, as a user would.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <sys/wait.h>

namespace skein::testing {

struct Run {
  int status = -1;
  std::string output;
};

// What a shell's command ends with and writes to its stdout.
inline Run run_command(const std::string& command) {
  Run run;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  std::array<char, 4096> buffer;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    run.output.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

// stdout and stderr together. `arguments` as the shell takes them; `environment` before the command
// ("HOME=/x").
inline Run run_skein(const std::string& arguments, const std::string& environment = {}) {
  return run_command(environment + " " SKEIN_BINARY " " + arguments + " 2>&1");
}

// stdout alone.
inline Run run_skein_quietly(const std::string& arguments) {
  return run_command(SKEIN_BINARY " " + arguments + " 2>/dev/null");
}

}  // namespace skein::testing
