#include "format/locate.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <optional>
#include <system_error>

#include "base/folder.h"
#include "format/quote.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".gguf";
constexpr size_t kMaxNameParts = 3;
constexpr size_t kMaxPartBytes = 255;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_plain_part(std::string_view part) {
  const auto is_bad = [](char c) { return c == '\\' || (c >= 0 && c < 0x20) || c == 0x7f; };
  return !part.empty() && part.size() <= kMaxPartBytes && part.front() != '.' &&
         std::none_of(part.begin(), part.end(), is_bad);
}

Result<std::vector<std::string>> split_name(std::string_view name) {
  std::vector<std::string> parts;
  for (size_t start = 0; start <= name.size();) {
    const size_t end = std::min(name.find('/', start), name.size());
    const std::string_view part = name.substr(start, end - start);
    if (!is_plain_part(part) || parts.size() == kMaxNameParts) {
      return invalid_argument("{} is not a model name: a name is NAME, ORG/NAME or ORG/NAME/FILE",
                              in_quotes(name));
    }
    parts.emplace_back(part);
    start = end + 1;
  }
  return parts;
}

// NAME-00002-of-00003.gguf and the like: opened through the first part.
bool is_later_part(std::string_view file) {
  constexpr size_t kDigits = 5;
  const size_t of = file.rfind("-of-");
  if (of == std::string_view::npos || of < kDigits) return false;
  const std::string_view number = file.substr(of - kDigits, kDigits);
  return number.find_first_not_of("0123456789") == std::string_view::npos && number != "00001";
}

// The image encoders that lie beside some models are no models.
bool stands_for_a_model(std::string_view file) {
  return file.ends_with(kSuffix) && !file.starts_with("mmproj") && !is_later_part(file);
}

// A folder that cannot be read holds no models.
std::vector<fs::path> entries_if_any(const fs::path& folder) {
  auto entries = entries_of(folder);
  return entries.ok() ? std::move(*entries) : std::vector<fs::path>{};
}

std::vector<std::string> gguf_files_in(const fs::path& folder) {
  std::vector<std::string> files;
  for (const fs::path& entry : entries_if_any(folder)) {
    const std::string file = entry.filename();
    if (stands_for_a_model(file) && is_file(entry)) files.push_back(file);
  }
  return files;
}

// A folder with config.json is a model; one without it may hold exactly one GGUF.
Result<std::string> model_in_folder(const fs::path& folder) {
  if (is_file(folder / "config.json")) return folder.string();
  const std::vector<std::string> files = gguf_files_in(folder);
  if (files.empty())
    return not_found("{}: has neither config.json nor a GGUF file", folder.string());
  if (files.size() > 1) {
    return invalid_argument("{}: has {} GGUF files; name one of: {}", folder.string(), files.size(),
                            fmt::join(files, ", "));
  }
  return (folder / files.front()).string();
}

// The file BASE, BASE.gguf or BASE-00001-of-NNNNN.gguf, or the model in the folder BASE.
Result<std::string> model_at(const fs::path& base) {
  if (is_folder(base)) return model_in_folder(base);
  if (base.native().ends_with(kSuffix) && is_file(base)) return base.string();
  if (fs::path with_suffix = base.native() + std::string(kSuffix); is_file(with_suffix)) {
    return with_suffix.string();
  }
  const std::string prefix = base.filename().string() + "-00001-of-";
  for (const std::string& file : gguf_files_in(base.parent_path())) {
    if (file.starts_with(prefix)) return (base.parent_path() / file).string();
  }
  return not_found("{}: no such model", base.string());
}

// The snapshot that refs/main names, or else the one that was written last.
std::optional<fs::path> newest_snapshot(const fs::path& repository) {
  std::string revision;
  std::ifstream(repository / "refs" / "main") >> revision;
  const fs::path snapshots = repository / "snapshots";
  if (is_plain_part(revision) && revision.find('/') == std::string::npos &&
      is_folder(snapshots / revision)) {
    return snapshots / revision;
  }
  std::optional<fs::path> newest;
  fs::file_time_type newest_time;
  for (const fs::path& entry : entries_if_any(snapshots)) {
    std::error_code error;
    const auto time = fs::last_write_time(entry, error);
    if (error || !is_folder(entry)) continue;
    if (!newest || time > newest_time) newest = entry, newest_time = time;
  }
  return newest;
}

Result<std::string> model_in_hf_cache(const std::vector<std::string>& parts,
                                      const fs::path& cache) {
  if (parts.size() < 2) return not_found("the Hugging Face cache has ORG/NAME only");
  const fs::path repository = cache / fmt::format("models--{}--{}", parts[0], parts[1]);
  const std::optional<fs::path> snapshot = newest_snapshot(repository);
  if (!snapshot) return not_found("{}: no snapshot", repository.string());
  return parts.size() == 2 ? model_in_folder(*snapshot) : model_at(*snapshot / parts[2]);
}

// Entries that may stand in a name, in order.
std::vector<fs::path> plain_entries(const fs::path& folder) {
  std::vector<fs::path> entries = entries_if_any(folder);
  std::erase_if(entries,
                [](const fs::path& entry) { return !is_plain_part(entry.filename().native()); });
  return entries;
}

// `prefix` is empty at the top and "ORG/" one level down, where it ends.
void list_folder(const fs::path& folder, const std::string& prefix,
                 std::vector<NamedModel>& models) {
  for (const fs::path& entry : plain_entries(folder)) {
    const std::string name = entry.filename().string();
    if (is_file(entry)) {
      if (stands_for_a_model(name)) {
        models.push_back({prefix + stem_of_model(name), entry.string()});
      }
      continue;
    }
    if (!is_folder(entry)) continue;
    if (const auto model = model_in_folder(entry); model.ok()) {
      models.push_back({prefix + name, *model});
      continue;
    }
    const std::vector<std::string> files = gguf_files_in(entry);
    for (const std::string& file : files) {
      models.push_back({prefix + name + "/" + stem_of_model(file), (entry / file).string()});
    }
    if (files.empty() && prefix.empty()) list_folder(entry, name + "/", models);
  }
}

}  // namespace

std::string stem_of_model(const std::string& path) {
  fs::path plain = fs::path(path).lexically_normal();
  if (!plain.has_filename()) plain = plain.parent_path();  // "folder/"
  std::string name = plain.filename().string();
  if (!name.ends_with(kSuffix)) return name;
  name.resize(name.size() - kSuffix.size());
  // NAME-00001-of-00003 is NAME.
  constexpr size_t kPartDigits = 5;
  constexpr size_t kPartBytes = 2 * kPartDigits + 5;  // -DDDDD-of-DDDDD
  if (const size_t of = name.rfind("-of-"); of != std::string::npos && of >= kPartDigits + 2 &&
                                            of + 4 + kPartDigits == name.size() &&
                                            name[of - kPartDigits - 1] == '-') {
    name.resize(name.size() - kPartBytes);
  }
  return name;
}

std::vector<NamedModel> list_models(const std::string& models_folder) {
  std::vector<NamedModel> models;
  if (!models_folder.empty()) list_folder(models_folder, "", models);
  return models;
}

Result<std::string> locate_name(std::string_view name, const ModelFolders& folders) {
  if (name == "default") {
    fs::path path = fs::path(folders.models) / kDefaultModelFile;
    if (!folders.models.empty() && is_file(path)) return path.string();
    return not_found("the default model is not at {}; `make model` fetches it", path.string());
  }
  SKEIN_ASSIGN(const std::vector<std::string> parts, split_name(name));
  std::vector<std::string> searched;
  const auto is_answer = [](const Result<std::string>& found) {
    return found.ok() || found.status().code() != Code::kNotFound;
  };
  if (!folders.models.empty()) {
    fs::path base = folders.models;
    for (const std::string& part : parts) base /= part;
    if (auto found = model_at(base); is_answer(found)) return found;
    searched.push_back(folders.models);
  }
  if (!folders.hf_cache.empty()) {
    if (auto found = model_in_hf_cache(parts, folders.hf_cache); is_answer(found)) return found;
    searched.push_back(folders.hf_cache);
  }
  return not_found("no model {} in {}", in_quotes(name),
                   searched.empty() ? "any folder" : fmt::format("{}", fmt::join(searched, ", ")));
}

Result<std::string> locate_model(std::string_view model, const ModelFolders& folders) {
  if (model == "default") return locate_name(model, folders);
  const fs::path path(model);
  if (is_folder(path)) return model_in_folder(path);
  std::error_code error;
  if (!model.empty() && fs::exists(path, error)) return path.string();
  const bool is_path = path.is_absolute() || model.starts_with("./") || model.starts_with("../");
  if (is_path) return not_found("{}: no such file or folder", model);
  return locate_name(model, folders);
}

}  // namespace skein
