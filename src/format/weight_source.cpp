#include "format/weight_source.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <iterator>
#include <system_error>
#include <utility>

#include "format/mlx.h"
#include "format/quote.h"

namespace skein {
namespace {

// tokenizer_config.json holds a string, or a list of {"name": ..., "template": ...}.
Result<std::optional<std::string_view>> template_of_config(const Json& config,
                                                           std::string_view name) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::optional<std::string_view>();
  if (found->is_string()) {
    if (!name.empty()) return std::optional<std::string_view>();
    return std::optional<std::string_view>(found->get_ref<const std::string&>());
  }
  if (!found->is_array()) {
    return invalid_argument("tokenizer_config.json: chat_template is a {}, not a string or a list",
                            found->type_name());
  }
  const std::string_view wanted = name.empty() ? "default" : name;
  for (const Json& entry : *found) {
    const bool sound = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                       entry.contains("template") && entry["template"].is_string();
    if (!sound) {
      return invalid_argument(
          "tokenizer_config.json: an entry of chat_template is not {{\"name\": ..., "
          "\"template\": ...}}");
    }
    if (entry["name"].get_ref<const std::string&>() == wanted) {
      return std::optional<std::string_view>(entry["template"].get_ref<const std::string&>());
    }
  }
  return std::optional<std::string_view>();
}

}  // namespace

const NamedTensor* WeightSource::find(std::string_view name) const {
  const auto it =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const NamedTensor& t, std::string_view n) { return t.name < n; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

Result<TensorView> WeightSource::get(std::string_view name) const {
  const NamedTensor* tensor = find(name);
  if (tensor == nullptr) return not_found("{}: tensor {} is missing", path_, in_quotes(name));
  return tensor->view;
}

Result<std::optional<std::string_view>> WeightSource::chat_template(std::string_view name) const {
  if (kind_ == SourceKind::kGguf) {
    const std::string key =
        name.empty() ? "tokenizer.chat_template" : fmt::format("tokenizer.chat_template.{}", name);
    if (!metadata_.has(key)) return std::optional<std::string_view>();
    SKEIN_ASSIGN(const std::string_view text, metadata_.get<std::string_view>(key));
    return std::optional(text);
  }
  if (name.empty() && documents_.chat_template) {
    return std::optional<std::string_view>(*documents_.chat_template);
  }
  return template_of_config(documents_.tokenizer_config, name);
}

Result<std::optional<AffineView>> WeightSource::affine(std::string_view module) const {
  return mlx_matrix(*this, module);
}

void WeightSource::release(std::span<const std::byte> bytes) const {
  for (const MappedFile& file : files_) file.advise(MappedFile::Advice::kDontNeed, bytes);
}

void WeightSource::release() const {
  for (const MappedFile& file : files_) file.advise(MappedFile::Advice::kDontNeed, file.bytes());
}

Status WeightSource::check_unchanged() const {
  for (const MappedFile& file : files_) SKEIN_TRY(file.check_unchanged());
  if (documents_.tokenizer_file) SKEIN_TRY(documents_.tokenizer_file->check_unchanged());
  return ok_status();
}

Status WeightSource::set_tensors(std::vector<NamedTensor> tensors) {
  tensors_ = std::move(tensors);
  std::sort(tensors_.begin(), tensors_.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(
      tensors_.begin(), tensors_.end(),
      [](const NamedTensor& a, const NamedTensor& b) { return a.name == b.name; });
  if (twice == tensors_.end()) return ok_status();
  return invalid_argument("{}: tensor {} is in two of its files", path_, in_quotes(twice->name));
}

Result<WeightSource> open_model(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? open_hf_folder(path) : open_gguf(path);
}

}  // namespace skein
