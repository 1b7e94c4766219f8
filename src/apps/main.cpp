#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"skein serves large language models to many clients at once.", "skein"};
  app.set_version_flag("--version", "skein " SKEIN_VERSION);
  app.require_subcommand(1);

  skein::apps::CommandResult result;
  skein::apps::add_serve(app, result);
  skein::apps::add_inspect(app, result);
  skein::apps::add_tokenize(app, result);
  skein::apps::add_render(app, result);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (result.ok()) return 0;
  std::fprintf(stderr, "skein: %s\n", result.message().c_str());
  return 1;
}
