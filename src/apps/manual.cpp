// Manual pages and shell completions, made of the commands and options that the binary has.

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include "apps/commands.h"
#include "apps/files.h"

namespace skein::apps {
namespace {

struct Page {
  std::string name;  // skein-keys-add
  std::string line;  // skein keys add
  const CLI::App* app;
};

// A command without a name is a group of options of the one above it.
std::vector<const CLI::App*> shown_commands(const CLI::App& app) {
  return app.get_subcommands(
      [](const CLI::App* one) { return !one->get_group().empty() && !one->get_name().empty(); });
}

std::vector<const CLI::Option*> shown_options(const CLI::App& app) {
  const auto is_shown = [](const CLI::Option* one) { return !one->get_group().empty(); };
  std::vector<const CLI::Option*> options = app.get_options(is_shown);
  for (const CLI::App* group : app.get_subcommands({})) {
    if (!group->get_name().empty()) continue;
    for (const CLI::Option* option : group->get_options(is_shown)) options.push_back(option);
  }
  return options;
}

void collect_pages(const CLI::App& app, const Page* above, std::vector<Page>& pages) {
  const std::string& name = app.get_name();
  const Page page = {above == nullptr ? name : above->name + "-" + name,
                     above == nullptr ? name : above->line + " " + name, &app};
  pages.push_back(page);
  for (const CLI::App* command : shown_commands(app)) collect_pages(*command, &page, pages);
}

std::vector<Page> pages_of(const CLI::App& app) {
  std::vector<Page> pages;
  collect_pages(app, nullptr, pages);
  return pages;
}

// ---- manual pages ----

// Text for troff: nothing in it is an instruction.
std::string roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out.append("\\&");
    line_begins = c == '\n';
    if (c == '\\') {
      out.append("\\e");
    } else if (c == '-') {
      out.append("\\-");
    } else if (c == '|') {
      out.append("|\\:");  // a line may end behind it
    } else {
      out.push_back(c);
    }
  }
  return out;
}

// -p, --prompt TEXT
std::string option_title(const CLI::Option& option) {
  std::string names;
  const auto add = [&names](std::string_view dashes, const std::string& name) {
    if (!names.empty()) names.append(", ");
    names.append("\\fB").append(roff(dashes)).append(roff(name)).append("\\fR");
  };
  for (const std::string& name : option.get_snames()) add("-", name);
  for (const std::string& name : option.get_lnames()) add("--", name);
  if (!option.nonpositional()) names = "\\fI" + roff(option.get_name(true)) + "\\fR";
  const std::string type = option.get_items_expected_max() == 0 ? "" : option.get_type_name();
  if (!type.empty() && option.nonpositional()) names += " \\fI" + roff(type) + "\\fR";
  return names;
}

std::string man_options(const CLI::App& app) {
  std::string out;
  std::string group;
  for (const CLI::Option* option : shown_options(app)) {
    if (option->get_group() != group) {
      group = option->get_group();
      out.append(group == "Options" ? ".SH OPTIONS\n" : ".SS " + roff(group) + "\n");
    }
    out.append(".TP\n").append(option_title(*option)).append("\n");
    out.append(roff(option->get_description()));
    if (!option->get_default_str().empty()) {
      out.append(" [").append(roff(option->get_default_str())).append("]");
    }
    out.append("\n");
  }
  return out;
}

std::string man_page(const Page& page) {
  std::string out =
      fmt::format(".TH {} 1 \"\" \"skein {}\" \"skein\"\n", roff(page.name), SKEIN_VERSION);
  const std::string what = page.app->get_description();
  out += ".ad l\n";  // a line of one long word cannot be stretched to the margin
  out += fmt::format(".SH NAME\n{} \\- {}\n", roff(page.name), roff(what));
  const std::vector<const CLI::App*> commands = shown_commands(*page.app);
  out += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR [\\fIOPTIONS\\fR]{}\n", roff(page.line),
                     commands.empty() ? "" : " \\fICOMMAND\\fR");
  if (!commands.empty()) out += ".SH COMMANDS\n";
  for (const CLI::App* command : commands) {
    out += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page.name + "-" + command->get_name()),
                       roff(command->get_description()));
  }
  out += man_options(*page.app);
  if (const std::string notes = page.app->get_footer(); !notes.empty()) {
    out += ".SH NOTES\n.nf\n" + roff(notes) + "\n.fi\n";
  }
  return out;
}

// ---- completions ----

// The words that an option's value can be; none: any text.
std::vector<std::string> words_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  char separator = '|';
  if (const size_t open = type.find('{'); open != std::string::npos) {  // TEXT:{a,b}
    type = type.substr(open + 1, type.find('}') - open - 1);
    separator = ',';
  }
  std::vector<std::string> words;
  if (type.find(separator) == std::string::npos) return words;
  for (size_t at = 0; at <= type.size();) {
    const size_t end = std::min(type.find(separator, at), type.size());
    words.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

// Every spelling: -p, --prompt, and --no-sandbox where a flag can be turned off.
std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out.append(separator);
    out.append(word);
  }
  return out;
}

// The commands as patterns of a shell's case.
std::vector<std::string> quoted_lines(const std::vector<Page>& pages) {
  std::vector<std::string> lines;
  lines.reserve(pages.size());
  for (const Page& page : pages) lines.push_back("\"" + page.line + "\"");
  return lines;
}

// Within '...' of a shell.
std::string quoted(std::string_view text, std::string_view quote) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out.append(quote);
    } else {
      out.push_back(c == '\n' ? ' ' : c);
    }
  }
  return out;
}

std::string bash_words(const Page& page) {
  std::vector<std::string> words;
  for (const CLI::App* command : shown_commands(*page.app)) words.push_back(command->get_name());
  for (const CLI::Option* option : shown_options(*page.app)) {
    for (std::string& name : spellings(*option)) words.push_back(std::move(name));
  }
  return joined(words, " ");
}

std::string bash_completion(const std::vector<Page>& pages) {
  std::string out =
      "# Completion of skein's command line for bash.\n"
      "_skein() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=skein i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case \"$command ${COMP_WORDS[i]}\" in\n      ";
  out += joined(quoted_lines(pages), " | ") +
         ") command+=\" ${COMP_WORDS[i]}\" ;;\n    esac\n  done\n";
  out += "  COMPREPLY=()\n  case \"$command $before\" in\n";
  for (const Page& page : pages) {
    for (const CLI::Option* option : shown_options(*page.app)) {
      if (!option->nonpositional() || !takes_value(*option)) continue;
      std::vector<std::string> cases;
      for (const std::string& name : spellings(*option)) {
        cases.push_back("\"" + page.line + " " + name + "\"");
      }
      const std::vector<std::string> words = words_of(*option);
      out += fmt::format("    {}) mapfile -t COMPREPLY < <(compgen {} -- \"$word\"); return ;;\n",
                         joined(cases, " | "),
                         words.empty() ? "-f" : "-W '" + joined(words, " ") + "'");
    }
  }
  out += "  esac\n  case \"$command\" in\n";
  for (const Page& page : pages) {
    out += fmt::format("    \"{}\") mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\") ;;\n",
                       page.line, bash_words(page));
  }
  return out + "  esac\n}\ncomplete -o bashdefault -F _skein skein\n";
}

std::string zsh_option(const CLI::Option& option, const std::string& name) {
  std::string help;
  for (const char c : option.get_description()) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') help.push_back('\\');
    help.push_back(c);
  }
  std::string out = fmt::format("'{}[{}]", name, quoted(help, "'\\''"));
  if (!takes_value(option)) return out + "'";
  const std::vector<std::string> words = words_of(option);
  return out + (words.empty() ? ":value:_files'" : ":value:(" + joined(words, " ") + ")'");
}

std::string zsh_completion(const std::vector<Page>& pages) {
  std::string out =
      "#compdef skein\n"
      "# Completion of skein's command line for zsh.\n"
      "local command=skein i\n"
      "for ((i = 2; i < CURRENT; ++i)); do\n  case \"$command $words[i]\" in\n    ";
  out += joined(quoted_lines(pages), " | ") + ") command+=\" $words[i]\" ;;\n  esac\ndone\n";
  out += "case $command in\n";
  for (const Page& page : pages) {
    out += fmt::format("  \"{}\")\n", page.line);
    std::vector<std::string> commands;
    for (const CLI::App* command : shown_commands(*page.app)) {
      commands.push_back(
          fmt::format("'{}:{}'", command->get_name(), quoted(command->get_description(), "'\\''")));
    }
    if (!commands.empty()) {
      out += fmt::format("    local -a commands=({})\n", joined(commands, " "));
      out += "    [[ $words[CURRENT] == -* ]] || _describe command commands\n";
    }
    out += "    _arguments";
    for (const CLI::Option* option : shown_options(*page.app)) {
      for (const std::string& name : spellings(*option)) {
        out += " \\\n      " + zsh_option(*option, name);
      }
    }
    out += commands.empty() ? " \\\n      '*:file:_files' ;;\n" : " ;;\n";
  }
  return out + "esac\n";
}

std::string fish_completion(const std::vector<Page>& pages) {
  std::string out = "# Completion of skein's command line for fish.\n";
  for (const Page& page : pages) {
    // The words of the command have been typed, and no further one of its own.
    std::vector<std::string> below;
    for (const CLI::App* command : shown_commands(*page.app)) below.push_back(command->get_name());
    std::string where = "true";
    for (size_t at = page.line.find(' '); at != std::string::npos; at = page.line.find(' ', at)) {
      const size_t end = std::min(page.line.find(' ', ++at), page.line.size());
      where += "; and __fish_seen_subcommand_from " + page.line.substr(at, end - at);
    }
    if (!below.empty()) where += "; and not __fish_seen_subcommand_from " + joined(below, " ");
    for (const CLI::App* command : shown_commands(*page.app)) {
      out += fmt::format("complete -c skein -n '{}' -f -a {} -d '{}'\n", where, command->get_name(),
                         quoted(command->get_description(), "\\'"));
    }
    for (const CLI::Option* option : shown_options(*page.app)) {
      if (!option->nonpositional()) continue;
      std::string line = fmt::format("complete -c skein -n '{}'", where);
      for (const std::string& name : option->get_snames()) line += " -s " + name;
      for (const std::string& name : option->get_lnames()) line += " -l " + name;
      const std::vector<std::string> words = words_of(*option);
      if (takes_value(*option)) line += " -r";
      if (!words.empty()) line += " -f -a '" + joined(words, " ") + "'";
      out += line + fmt::format(" -d '{}'\n", quoted(option->get_description(), "\\'"));
    }
  }
  return out;
}

// By the path below a folder like /usr/share: a manual page for each command, and completions for
// bash, zsh and fish.
std::map<std::string, std::string> manual_files(const CLI::App& app) {
  const std::vector<Page> pages = pages_of(app);
  std::map<std::string, std::string> files;
  for (const Page& page : pages) files["man/man1/" + page.name + ".1"] = man_page(page);
  files["bash-completion/completions/skein"] = bash_completion(pages);
  files["zsh/vendor-completions/_skein"] = zsh_completion(pages);
  files["fish/vendor_completions.d/skein.fish"] = fish_completion(pages);
  return files;
}

Status write_files(const CLI::App& app, const std::string& folder) {
  for (const auto& [name, text] : manual_files(app)) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    SKEIN_TRY(write_file(path.string(), text));
  }
  return {};
}

}  // namespace

void add_manual(CLI::App& app, CommandResult& result) {
  auto folder = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("manual", "Write manual pages and shell completions below a folder");
  command->group("");  // for those who package it
  command->add_option("folder", *folder, "As /usr/share")->required();
  command->callback([&app, folder, &result] { result = write_files(app, *folder); });
}

}  // namespace skein::apps
