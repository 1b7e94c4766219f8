#include "apps/serve_config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "apps/files.h"

namespace skein::apps {
namespace {

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
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const ServeOption& o) { return o.variable() == name; });
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

}  // namespace

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

}  // namespace skein::apps
