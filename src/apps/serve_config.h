// Where the options of `skein serve` come from: flag > variable > TOML file > default.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "apps/serve_options.h"
#include "base/status.h"

namespace skein::apps {

struct ServeConfig {
  ServeOptions options;
  std::vector<std::string> origins;   // of each option of serve_options(): "--port", "f.toml:3"
  std::vector<std::string> warnings;  // for the log
};

// The words that a command line gave each option, by its place in serve_options().
using GivenFlags = std::map<size_t, Words>;
// Variables that begin with SKEIN_.
using Environment = std::map<std::string, std::string>;

// `file` may be empty: then the variable SKEIN_CONFIG names it, or there is none. Errors name the
// flag, the variable, or the file with its line; an unknown key of the file is one.
Result<ServeConfig> load_config(const GivenFlags& flags, const Environment& environment,
                                std::string file);

// TOML that gives the same options again, each with where it came from.
std::string describe_config(const ServeConfig& config);

// This process's SKEIN_ variables.
Environment skein_environment();

}  // namespace skein::apps
