#include <toml++/toml.h>

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/files.h"
#include "apps/serve_options.h"
#include "apps/serve_run.h"
#include "base/log.h"
#include "base/status.h"

namespace skein::apps {
namespace {

// Where the options of `skein serve` come from: flag > variable > TOML file > default.
struct ServeConfig {
  ServeOptions options;
  std::vector<std::string> origins;   // of each option of serve_options(): "--port", "f.toml:3"
  std::vector<std::string> warnings;  // for the log
};

// The words that a command line gave each option, by its place in serve_options().
using GivenFlags = std::map<size_t, Words>;
// Variables that begin with SKEIN_.
using Environment = std::map<std::string, std::string>;

constexpr std::string_view kPrefix = "SKEIN_";
constexpr std::string_view kConfigVariable = "SKEIN_CONFIG";

Words split(std::string_view text) {
  Words words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// One overload per type of option: a TOML value of another type is refused, not converted.
Status assign(const ServeOption&, bool& to, const toml::node& node) {
  const auto value = node.value_exact<bool>();
  if (!value) return invalid_argument("it must be true or false");
  to = *value;
  return {};
}
Status assign(const ServeOption& option, uint64_t& to, const toml::node& node) {
  const auto value = node.value_exact<int64_t>();
  if (!value) return invalid_argument("it must be a whole number");
  SKEIN_TRY(check_number(option, static_cast<double>(*value)));
  to = static_cast<uint64_t>(*value);
  return {};
}
Status assign(const ServeOption& option, double& to, const toml::node& node) {
  const auto value = node.value<double>();
  if (!node.is_number() || !value) return invalid_argument("it must be a number");
  SKEIN_TRY(check_number(option, *value));
  to = *value;
  return {};
}
Status assign(const ServeOption& option, std::string& to, const toml::node& node) {
  const auto value = node.value_exact<std::string>();
  if (!value) return invalid_argument("it must be text in quotes");
  SKEIN_TRY(check_text(option, *value));
  to = *value;
  return {};
}
Status assign(const ServeOption& option, Bytes& to, const toml::node& node) {
  if (const auto bytes = node.value_exact<int64_t>(); bytes && *bytes >= 0) {
    to = {static_cast<uint64_t>(*bytes)};
    return {};
  }
  std::string text;
  SKEIN_TRY(assign(option, text, node));
  SKEIN_ASSIGN(to, parse_bytes(text));
  return {};
}
Status assign(const ServeOption& option, Words& to, const toml::node& node) {
  const toml::array* items = node.as_array();
  if (items == nullptr) {  // one word needs no brackets
    std::string word;
    SKEIN_TRY(assign(option, word, node));
    to = {word};
    return {};
  }
  Words words;
  for (const toml::node& item : *items) {
    const auto word = item.value_exact<std::string>();
    if (!word) return invalid_argument("it must be a list of texts in quotes");
    words.push_back(*word);
  }
  to = std::move(words);
  return {};
}

class Loader {
 public:
  Loader() { config_.origins.assign(serve_options().size(), "default"); }

  Status read_file(const std::string& path);
  Status read_environment(const Environment& environment);
  Status read_flags(const GivenFlags& flags);
  ServeConfig take() { return std::move(config_); }

 private:
  Status read_table(const toml::table& table, const std::string& path);
  static Status unknown_key(const std::string& key, const std::string& place);

  ServeConfig config_;
};

Status Loader::read_file(const std::string& path) {
  SKEIN_ASSIGN(const std::string text, apps::read_file(path));
  try {
    return read_table(toml::parse(text, path), path);
  } catch (const toml::parse_error& error) {
    return invalid_argument("{}:{}: {}", path, error.source().begin.line, error.description());
  }
}

Status Loader::unknown_key(const std::string& key, const std::string& place) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '-', '_');
  for (const ServeOption& option : serve_options()) {
    if (option.name == name) {
      return invalid_argument("{}: unknown key '{}'; it is written '{}'", place, key, name);
    }
  }
  return invalid_argument("{}: unknown key '{}'; `skein serve --print-config` lists the keys",
                          place, key);
}

Status Loader::read_table(const toml::table& table, const std::string& path) {
  const auto options = serve_options();
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string place = fmt::format("{}:{}", path, key.source().begin.line);
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const ServeOption& o) { return o.name == name; });
    if (option == options.end()) return unknown_key(name, place);
    const Status set = std::visit(
        [&, &value = node](auto member) { return assign(*option, config_.options.*member, value); },
        option->member);
    if (!set.ok()) return invalid_argument("{}: {}: {}", place, name, set.message());
    config_.origins[static_cast<size_t>(option - options.begin())] = place;
  }
  return {};
}

Status Loader::read_environment(const Environment& environment) {
  const auto options = serve_options();
  for (const auto& [name, value] : environment) {
    if (name == kConfigVariable) continue;
    const auto option =
        std::find_if(options.begin(), options.end(),
                     [&name = name](const ServeOption& o) { return o.variable() == name; });
    if (option == options.end()) {
      config_.warnings.push_back(fmt::format("the variable {} is no option; ignored", name));
      continue;
    }
    const Status set =
        option->set(config_.options, option->is_list() ? split(value) : Words{value});
    if (!set.ok()) return invalid_argument("{}: {}", name, set.message());
    config_.origins[static_cast<size_t>(option - options.begin())] = name;
  }
  return {};
}

Status Loader::read_flags(const GivenFlags& flags) {
  for (const auto& [place, words] : flags) {
    const ServeOption& option = serve_options()[place];
    const Status set = option.set(config_.options, words);
    if (!set.ok()) return invalid_argument("{}: {}", option.flag(), set.message());
    config_.origins[place] = option.flag();
  }
  return {};
}

// `file` may be empty: then the variable SKEIN_CONFIG names it, or there is none. Errors name the
// flag, the variable, or the file with its line; an unknown key of the file is one.
Result<ServeConfig> load_config(const GivenFlags& flags, const Environment& environment,
                                std::string file) {
  if (const auto named = environment.find(std::string(kConfigVariable));
      file.empty() && named != environment.end()) {
    file = named->second;
  }
  Loader loader;
  if (!file.empty()) SKEIN_TRY(loader.read_file(file));
  SKEIN_TRY(loader.read_environment(environment));
  SKEIN_TRY(loader.read_flags(flags));
  return loader.take();
}

// TOML that gives the same options again, each with where it came from.
std::string describe_config(const ServeConfig& config) {
  constexpr size_t kColumn = 48;
  std::string out;
  std::string_view group;
  for (size_t i = 0; i < serve_options().size(); ++i) {
    const ServeOption& option = serve_options()[i];
    if (option.group != group) {
      if (!group.empty()) out.push_back('\n');
      group = option.group;
      out.append(fmt::format("# {}\n", group));
    }
    out.append(fmt::format("{:<{}} # {}\n",
                           fmt::format("{} = {}", option.name, option.value(config.options)),
                           kColumn, config.origins[i]));
  }
  return out;
}

// This process's SKEIN_ variables.
Environment skein_environment() {
  Environment found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

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
