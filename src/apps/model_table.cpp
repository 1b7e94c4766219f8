#include "apps/model_table.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

namespace skein::apps {
namespace {

namespace fs = std::filesystem;

// A name that goes into JSON, URLs and metrics: UTF-8 would do, but file names need not be any.
bool is_servable(const std::string& id) {
  return !id.empty() &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// The same for two ways to one file.
std::string identity_of(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  return error ? path : canonical.string();
}

// A snapshot of the Hugging Face cache is named by its revision, so the user's word is better.
std::string id_of(const std::string& model, const std::string& path) {
  const bool is_snapshot = fs::path(path).parent_path().filename() == "snapshots";
  return is_snapshot ? model : stem_of_model(path);
}

}  // namespace

Result<std::vector<ModelConfig>> models_to_load(const std::vector<std::string>& models,
                                                const std::vector<std::string>& names,
                                                const ModelFolders& folders) {
  if (names.size() > models.size()) {
    return invalid_argument("{} served model names for {} models", names.size(), models.size());
  }
  std::vector<ModelConfig> configs;
  for (size_t i = 0; i < models.size(); ++i) {
    SKEIN_ASSIGN(const std::string path, locate_model(models[i], folders));
    const std::string id = i < names.size() ? names[i] : id_of(models[i], path);
    if (!is_servable(id)) {
      return invalid_argument(
          "'{}' cannot be a model's name: it must be printable ASCII without "
          "spaces; give one with --served-model-name",
          id);
    }
    for (const ModelConfig& other : configs) {
      if (other.id != id) continue;
      return invalid_argument(
          "two models are called '{}': {} and {}; tell them apart with "
          "--served-model-name",
          id, other.path, path);
    }
    configs.push_back({.id = id, .path = path});
  }
  return configs;
}

std::vector<ModelConfig> models_in_folder(const std::string& models_folder,
                                          const std::vector<ModelConfig>& taken) {
  std::set<std::string> ids;
  std::set<std::string> files;
  for (const ModelConfig& config : taken) {
    ids.insert(config.id);
    files.insert(identity_of(config.path));
  }
  std::vector<ModelConfig> configs;
  for (NamedModel& model : list_models(models_folder)) {
    if (!is_servable(model.name) || !files.insert(identity_of(model.path)).second) continue;
    if (!ids.insert(model.name).second) continue;
    configs.push_back({.id = std::move(model.name), .path = std::move(model.path)});
  }
  return configs;
}

}  // namespace skein::apps
