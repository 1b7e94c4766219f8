#include <cstdio>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "server/store/migrate_state.h"

namespace skein::apps {
namespace {

struct MigrateOptions {
  std::string from;
  std::string store;
};

Status run_migrate(const MigrateOptions& options) {
  SKEIN_ASSIGN(const MigratedState moved, migrate_state(options.from, options.store));
  std::printf("%llu rows and %llu files with %llu bytes are in the store now. %s is as it was.\n",
              static_cast<unsigned long long>(moved.rows),
              static_cast<unsigned long long>(moved.files),
              static_cast<unsigned long long>(moved.bytes), options.from.c_str());
  return {};
}

}  // namespace

void add_migrate_store(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<MigrateOptions>();
  CLI::App* command = app.add_subcommand(
      "migrate-store", "Copy a state folder into a store that several servers share");
  command->add_option("--from", options->from, "The state folder; no server may run on it")
      ->required();
  command->add_option("--store", options->store, "postgresql://host/database, with nothing in it")
      ->required();
  command->footer(
      "Keys, usage, files, batches and responses, all of it or nothing. Servers on the store then\n"
      "go on where the one on the folder stopped: keys, ids and limits stay.\n\n"
      "  skein migrate-store --from ~/.local/state/skein --store postgresql://db.local/skein\n\n"
      "Exit status: 0 done, 1 failed (the reason on stderr), 2 wrong usage.");
  command->callback([options, &result] { result = run_migrate(*options); });
}

}  // namespace skein::apps
