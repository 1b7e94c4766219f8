#include "apps/serve_start.h"

#include <utility>

#include "apps/files.h"
#include "apps/model_check.h"
#include "apps/model_table.h"
#include "apps/serve_sandbox.h"
#include "base/log.h"
#include "server/store/store.h"

namespace skein::apps {

Result<ServeFiles> find_files(const ServeOptions& options) {
  ServeFiles files;
  files.folders = model_folders();
  if (!options.model_folder.empty()) files.folders.models = options.model_folder;
  SKEIN_ASSIGN(files.first,
               models_to_load(options.model, options.served_model_name, files.folders));
  // Those of the command line first: the first of all is what an absent `model` means.
  files.known = files.first;
  for (ModelConfig& config : models_in_folder(files.folders.models, files.first)) {
    files.known.push_back(std::move(config));
  }
  if (files.known.empty()) {
    return not_found("there is no model to serve: give --model, or put one into {}",
                     files.folders.models.empty() ? "a --model-folder" : files.folders.models);
  }
  files.state_dir = options.state_dir.empty() ? default_state_dir() : options.state_dir;
  if (files.state_dir.empty()) {
    return invalid_argument("neither XDG_STATE_HOME nor HOME is set: give --state-dir");
  }
  return files;
}

Result<std::unique_ptr<SideProcess>> enter_serve_sandbox(const ServeOptions& options,
                                                         const ServeFiles& files) {
  SKEIN_TRY(make_state_dir(files.state_dir));
  std::vector<std::string> paths;
  for (const ModelConfig& config : files.known) paths.push_back(config.path);
  const SandboxRules rules = serve_sandbox(options, files.folders, paths, files.state_dir);
  const auto max_context = static_cast<uint32_t>(options.max_context);
  SKEIN_ASSIGN(std::unique_ptr<SideProcess> checker, start_model_checker(rules, max_context));
  SKEIN_ASSIGN(const SandboxReport report, enter_sandbox(rules));
  log_info("sandbox: {}", report.to_string());
  return checker;
}

}  // namespace skein::apps
