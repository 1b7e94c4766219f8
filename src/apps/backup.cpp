#include "server/store/backup.h"

#include <cstdio>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/files.h"

namespace skein::apps {
namespace {

struct BackupOptions {
  std::string state_dir = default_state_dir();
  std::string to;
};

Status run_backup(const BackupOptions& options) {
  if (options.state_dir.empty()) {
    return invalid_argument("neither XDG_STATE_HOME nor HOME is set: give --state-dir");
  }
  SKEIN_ASSIGN(const BackupSummary summary, back_up(options.state_dir, options.to));
  std::printf("%s: %llu files, %llu bytes. Serve from it with --state-dir %s.\n",
              options.to.c_str(), static_cast<unsigned long long>(summary.files),
              static_cast<unsigned long long>(summary.bytes), options.to.c_str());
  return {};
}

}  // namespace

void add_backup(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<BackupOptions>();
  CLI::App* command =
      app.add_subcommand("backup", "Copy a server's keys, files and batches while it runs");
  command->add_option("--state-dir", options->state_dir, "The server's state folder")
      ->capture_default_str();
  command->add_option("--to", options->to, "Folder to make; it must not exist")->required();
  command->footer(
      "The copy is of one moment and whole: the database and every file it names, on disk when "
      "the\n"
      "command ends. It holds the hashes of keys and what clients uploaded: keep it as private as\n"
      "the original. To restore, stop the server and point --state-dir to the copy.\n\n"
      "Exit status: 0 done, 1 failed (the reason on stderr; nothing is left), 2 wrong usage.");
  command->callback([options, &result] { result = run_backup(*options); });
}

}  // namespace skein::apps
