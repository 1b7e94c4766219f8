// One function per subcommand: it adds its options to the command line and a callback that leaves
// its end in a CommandResult. A new command is one file and its line here and in main.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"

namespace skein::apps {

// The end of a command: done (0), failed with the reason that main prints on stderr (1), or
// interrupted by Ctrl-C (130). Wrong usage is CLI11's and becomes 2.
class CommandResult {
 public:
  CommandResult() = default;
  CommandResult(Status status)  // NOLINT: implicit by design
      : exit_status_(status.ok() ? 0 : 1), message_(status.message()) {}
  static CommandResult interrupted() {
    CommandResult result;
    result.exit_status_ = 130;
    return result;
  }

  int exit_status() const { return exit_status_; }
  const std::string& message() const { return message_; }  // empty unless it failed

 private:
  int exit_status_ = 0;
  std::string message_;
};

// Ends a callback as wrong usage, as CLI11's own checks do, when `status` is not ok.
inline void check_usage(const Status& status) {
  if (!status.ok()) throw CLI::ValidationError(status.message());
}

void add_backup(CLI::App& app, CommandResult& result);
void add_bench(CLI::App& app, CommandResult& result);
void add_chat(CLI::App& app, CommandResult& result);
void add_dialog(CLI::App& app, CommandResult& result);
void add_eval(CLI::App& app, CommandResult& result);
void add_export_tokenizer(CLI::App& app, CommandResult& result);
void add_grammar(CLI::App& app, CommandResult& result);
void add_inspect(CLI::App& app, CommandResult& result);
void add_keys(CLI::App& app, CommandResult& result);
void add_manual(CLI::App& app, CommandResult& result);
void add_migrate_store(CLI::App& app, CommandResult& result);
void add_render(CLI::App& app, CommandResult& result);
void add_run(CLI::App& app, CommandResult& result);
void add_serve(CLI::App& app, CommandResult& result);
void add_tokenize(CLI::App& app, CommandResult& result);
void add_top(CLI::App& app, CommandResult& result);

}  // namespace skein::apps
