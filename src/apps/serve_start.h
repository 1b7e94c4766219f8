// What `skein serve` does before it has threads: finds its files, and gives up the right to others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/serve_options.h"
#include "base/side_process.h"
#include "base/status.h"
#include "engine/manager/scheduler_manager.h"
#include "format/locate.h"

namespace skein::apps {

struct ServeFiles {
  ModelFolders folders;
  std::vector<ModelConfig> first;  // load at the start
  std::vector<ModelConfig> known;  // all, and those of the command line before the others
  std::string state_dir;
};

// Errors say what is not there, or what two models are called.
Result<ServeFiles> find_files(const ServeOptions& options);

// Gives up what serving does not need, for good, and makes the state folder. The process that reads
// model files before the server does, with fewer rights still. The log says what is in force.
Result<std::unique_ptr<SideProcess>> enter_serve_sandbox(const ServeOptions& options,
                                                         const ServeFiles& files);

}  // namespace skein::apps
