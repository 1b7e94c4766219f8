#include "apps/files.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace skein::apps {
namespace {

// Empty when unset; an empty variable counts as unset.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string cache_folder() {
  if (std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return cache;
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache";
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return not_found("{} cannot be opened", path);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) return data_loss("{} cannot be read", path);
  return bytes;
}

Result<std::string> read_stdin() {
  std::string bytes;
  std::array<char, 4096> part;
  while (const size_t count = std::fread(part.data(), 1, part.size(), stdin)) {
    bytes.append(part.data(), count);
  }
  if (std::ferror(stdin) != 0) return data_loss("stdin cannot be read");
  return bytes;
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return unavailable("{}: cannot be written", path);
  return {};
}

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

std::string default_state_dir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  // The XDG specification: a relative path is as good as none.
  if (state != nullptr && state[0] == '/') return std::string(state) + "/skein";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] == '\0') return {};
  return std::string(home) + "/.local/state/skein";
}

}  // namespace skein::apps
