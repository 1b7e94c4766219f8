#include "format/hf_documents.h"

#include <fmt/format.h>
#include <utility>

namespace skein {
namespace {

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.size()};
}

Result<MappedFile> open_small(const std::string& path, size_t limit) {
  SKEIN_ASSIGN(MappedFile file, MappedFile::open(path));
  if (file.size() > limit) {
    return out_of_range("{}: has {} bytes, at most {} are read", path, file.size(), limit);
  }
  return file;
}

Result<Json> parse_object(const MappedFile& file) {
  auto document = parse_json(text_of(file));
  if (!document.ok()) {
    return Status(document.status().code(), fmt::format("{}: {}", file.path(), document.message()));
  }
  if (!document->is_object()) return invalid_argument("{}: is not a JSON object", file.path());
  return document;
}

// Turns "there is no such file" into "there is no value".
template <class T>
Result<std::optional<T>> optional_of(Result<T> result) {
  if (result.ok()) return std::optional<T>(std::move(result).value());
  if (result.status().code() == Code::kNotFound) return std::optional<T>();
  return result.status();
}

Result<std::string> load_text(const std::string& path, size_t limit) {
  SKEIN_ASSIGN(const MappedFile file, open_small(path, limit));
  return std::string(text_of(file));
}

// The templates of multimodal models came in a file of their own before there was
// chat_template.jinja.
Result<std::optional<std::string>> load_template(const std::string& folder) {
  SKEIN_ASSIGN(auto text,
               optional_of(load_text(folder + "/chat_template.jinja", kMaxTemplateBytes)));
  if (text) return text;
  const std::string legacy = folder + "/chat_template.json";
  SKEIN_ASSIGN(const auto wrapped, optional_of(load_json_object(legacy, kMaxTemplateBytes)));
  if (!wrapped) return std::optional<std::string>();
  const auto it = wrapped->find("chat_template");
  if (it == wrapped->end() || !it->is_string()) {
    return invalid_argument("{}: has no string 'chat_template'", legacy);
  }
  return std::optional(it->get<std::string>());
}

// A module's folder within the model's own: a plain name that leads nowhere else.
bool is_plain_folder(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name.front() != '.' &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

std::string pooling_folder(const Json& modules) {
  for (const Json& module : modules) {
    if (!module.is_object()) continue;
    const auto type = module.find("type"), path = module.find("path");
    if (type == module.end() || !type->is_string() || path == module.end() || !path->is_string()) {
      continue;
    }
    const auto& name = type->get_ref<const std::string&>();
    const auto& folder = path->get_ref<const std::string&>();
    if (name.ends_with(".Pooling") && is_plain_folder(folder)) return folder;
  }
  return "1_Pooling";
}

Status load_modules(const std::string& folder, HfDocuments& documents) {
  SKEIN_ASSIGN(const auto file,
               optional_of(open_small(folder + "/modules.json", kMaxDocumentBytes)));
  if (file) {
    auto modules = parse_json(text_of(*file));
    if (!modules.ok() || !modules->is_array()) {
      return invalid_argument("{}: is not a JSON array", file->path());
    }
    documents.modules = std::move(modules).value();
  }
  const std::string path = pooling_folder(documents.modules) + "/config.json";
  SKEIN_ASSIGN(auto pooling, optional_of(load_json_object(folder + "/" + path, kMaxDocumentBytes)));
  if (!pooling) return {};
  documents.pooling = *std::move(pooling);
  documents.pooling_file = path;
  return {};
}

}  // namespace

Result<Json> load_json_object(const std::string& path, size_t limit) {
  SKEIN_ASSIGN(const MappedFile file, open_small(path, limit));
  return parse_object(file);
}

std::optional<std::string_view> HfDocuments::tokenizer_text() const {
  if (!tokenizer_file) return std::nullopt;
  return text_of(*tokenizer_file);
}

Result<Json> HfDocuments::tokenizer() const {
  if (!tokenizer_file) return not_found("the folder has no tokenizer.json");
  return parse_object(*tokenizer_file);
}

Result<HfDocuments> load_documents(const std::string& folder) {
  HfDocuments documents;
  SKEIN_ASSIGN(documents.config, load_json_object(folder + "/config.json", kMaxDocumentBytes));
  for (const auto& [name, document] :
       {std::pair("generation_config.json", &documents.generation_config),
        std::pair("tokenizer_config.json", &documents.tokenizer_config)}) {
    SKEIN_ASSIGN(auto loaded,
                 optional_of(load_json_object(folder + "/" + name, kMaxDocumentBytes)));
    if (loaded) *document = *std::move(loaded);
  }
  SKEIN_TRY(load_modules(folder, documents));
  SKEIN_ASSIGN(documents.chat_template, load_template(folder));
  SKEIN_ASSIGN(documents.tokenizer_file,
               optional_of(open_small(folder + "/tokenizer.json", kMaxTokenizerBytes)));
  return documents;
}

}  // namespace skein
