// One function per subcommand: it adds its options to the command line and a callback that throws
// nothing and exits through `Exit`. A new command is one file and its line in main.cpp.
#pragma once

#include <CLI/CLI.hpp>

#include "base/status.h"

namespace skein::apps {

// What a command ended with; main prints the message on stderr and turns it into the exit status
// (0 done, 1 failed; wrong usage is CLI11's and becomes 2).
using CommandResult = Status;

void add_inspect(CLI::App& app, CommandResult& result);
void add_render(CLI::App& app, CommandResult& result);
void add_serve(CLI::App& app, CommandResult& result);
void add_tokenize(CLI::App& app, CommandResult& result);

}  // namespace skein::apps
