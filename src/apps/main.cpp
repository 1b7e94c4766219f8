#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <unistd.h>

#include "apps/commands.h"
#include "apps/version.h"
#include "base/patience.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"skein serves large language models to many clients at once.", "skein"};
  bool verbose = false;
  app.add_flag("--verbose", verbose, "With --version: commit, compiler, backends and libraries");
  app.set_version_flag("--version", [&verbose] {
    return verbose ? skein::apps::verbose_version() : std::string("skein " SKEIN_VERSION);
  });
  app.require_subcommand(1);
  app.footer(
      "A model is a GGUF file, a Hugging Face folder, a name in the model folder\n"
      "($XDG_CACHE_HOME/skein/models; org/name is also looked up in the Hugging Face cache),\n"
      "or 'default': SmolLM2-135M-Instruct, which `make model` fetches.\n\n"
      "  skein serve --model default       # then open http://127.0.0.1:8080/\n"
      "  skein chat --model default\n"
      "  skein run --model default -p 'Once upon a time' -n 64\n"
      "  skein inspect default\n"
      "  skein tokenize --model default --text 'Hello, world'\n"
      "  skein render --model default --context chat.json\n"
      "  skein bench --model default\n\n"
      "Exit status: 0 done, 1 failed (the reason on stderr), 2 wrong usage.\n"
      "`skein COMMAND --help` says more about a command.");

  skein::apps::CommandResult result;
  skein::apps::add_serve(app, result);
  skein::apps::add_chat(app, result);
  skein::apps::add_run(app, result);
  skein::apps::add_inspect(app, result);
  skein::apps::add_tokenize(app, result);
  skein::apps::add_render(app, result);
  skein::apps::add_export_tokenizer(app, result);
  skein::apps::add_grammar(app, result);
  skein::apps::add_dialog(app, result);
  skein::apps::add_eval(app, result);
  skein::apps::add_bench(app, result);
  skein::apps::add_top(app, result);
  skein::apps::add_keys(app, result);
  skein::apps::add_backup(app, result);
  skein::apps::add_manual(app, result);
  skein::apps::add_migrate_store(app, result);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!result.message().empty()) std::fprintf(stderr, "skein: %s\n", result.message().c_str());
  return result.exit_status();
}

}  // namespace

int main(int argc, char** argv) {
  skein::wait_for_memory();
  try {
    return run(argc, argv);
  } catch (
      const std::exception& error) {  // out of memory or threads before there was anybody to tell
    std::fprintf(stderr, "skein: %s\n", error.what());
    std::fflush(nullptr);
    ::_exit(1);  // without destructors, which would wait for threads that are not all there
  }
}
