#include "apps/model_path.h"

#include <cstdlib>

namespace skein::apps {
namespace {

// Empty when unset; an empty variable counts as unset.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string cache_folder() {
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return cache;
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache";
}

}  // namespace

ModelFolders model_folders() {
  const std::string cache = cache_folder();
  ModelFolders folders;
  if (!cache.empty()) folders.models = cache + "/skein/models";
  if (const std::string hub = environment("HF_HUB_CACHE"); !hub.empty()) {
    folders.hf_cache = hub;
  } else if (const std::string home = environment("HF_HOME"); !home.empty()) {
    folders.hf_cache = home + "/hub";
  } else if (!cache.empty()) {
    folders.hf_cache = cache + "/huggingface/hub";
  }
  return folders;
}

Result<std::string> model_path(const std::string& model) {
  return locate_model(model, model_folders());
}

}  // namespace skein::apps
