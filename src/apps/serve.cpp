#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/serve_config.h"
#include "apps/serve_run.h"
#include "base/log.h"

namespace skein::apps {
namespace {

struct ServeCommand {
  std::string config_file;
  bool print_config = false;
  std::vector<CLI::Option*> flags;  // as serve_options()
};

void add_flags(CLI::App& serve, ServeCommand& command) {
  const ServeOptions defaults;
  for (const ServeOption& option : serve_options()) {
    const std::string help = fmt::format("{} [{}]", option.help, option.value(defaults));
    CLI::Option* flag = nullptr;
    if (option.is_flag()) {
      flag = serve.add_flag(fmt::format("{0},!--no-{1}", option.flag(), option.flag().substr(2)),
                            help);
    } else {
      flag = serve.add_option(option.flag(), help)->type_name(option.type_name());
      if (option.is_list()) flag->take_all();
    }
    flag->group(std::string(option.group));
    command.flags.push_back(flag);
  }
}

GivenFlags given_flags(const ServeCommand& command) {
  GivenFlags given;
  for (size_t i = 0; i < command.flags.size(); ++i) {
    if (command.flags[i]->count() > 0) given[i] = command.flags[i]->results();
  }
  return given;
}

CommandResult serve(const ServeCommand& command) {
  const GivenFlags flags = given_flags(command);
  // Alone, so that what is wrong with the command line is wrong usage.
  check_usage(load_config(flags, {}, "").status());
  const Result<ServeConfig> config = load_config(flags, skein_environment(), command.config_file);
  if (!config.ok()) return config.status();
  if (command.print_config) {
    std::fputs(describe_config(*config).c_str(), stdout);
    return {};
  }
  for (const std::string& warning : config->warnings) log_warning("{}", warning);
  return run_server(config->options);
}

}  // namespace

void add_serve(CLI::App& app, CommandResult& result) {
  auto command = std::make_shared<ServeCommand>();
  CLI::App* serve_command =
      app.add_subcommand("serve", "Serve models over HTTP (OpenAI and Anthropic dialects)");
  serve_command->add_option("--config", command->config_file,
                            "TOML file of options: the names below with underscores");
  serve_command->add_flag("--print-config", command->print_config,
                          "Print every option with its value and where it came from, and end");
  add_flags(*serve_command, *command);
  serve_command->footer(
      "An option is taken from its flag, else from its variable (--max-queue: SKEIN_MAX_QUEUE),\n"
      "else from the TOML file (max_queue = 64), else it has its default.\n\n"
      "SIGTERM and SIGINT drain: new work gets 503, what runs has --drain-timeout seconds to end.\n"
      "A second one stops at once. SIGHUP reads keys, the certificate and the model\n"
      "folder again.\n\n"
      "Exit status: 0 stopped, 1 failed (the reason on stderr), 2 wrong usage, 128 + N stopped at\n"
      "once by a second signal N.");
  serve_command->callback([command, &result] { result = serve(*command); });
}

}  // namespace skein::apps
