// The sandbox of `skein serve`, which may read models, write the state folder, and touch nothing
// beyond.
#pragma once

#include <string>
#include <vector>

#include "apps/serve_options.h"
#include "base/sandbox.h"
#include "format/locate.h"

namespace skein::apps {

// A model's files: those of its folder, the file itself, or all of the parts of a GGUF file in
// parts. In order. `path` as open_model takes it.
std::vector<std::string> files_of_model(const std::string& path);

// Where the files of a model may lie: its folder, and the folders that links in it lead to (a
// snapshot of the Hugging Face cache is links to blobs).
std::vector<std::string> folders_of_model(const std::string& path);

// Adds what connections to a shared store need. Errors are those of Store::open() for a URL that is
// none.
Status add_store(const std::string& url, SandboxRules& rules);

// The rules for a server of these options, which knows the models at `paths`. Files that come into
// the folders later can be read, too; links out of them that come later cannot.
SandboxRules serve_sandbox(const ServeOptions& options, const ModelFolders& folders,
                           const std::vector<std::string>& paths, const std::string& state_dir);

// Why a model cannot be read within the sandbox: a file of it that a newer link stands for.
Status check_within_sandbox(const std::string& path);

}  // namespace skein::apps
