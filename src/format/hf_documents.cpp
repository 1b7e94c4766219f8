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
  SKEIN_ASSIGN(documents.chat_template, load_template(folder));
  SKEIN_ASSIGN(documents.tokenizer_file,
               optional_of(open_small(folder + "/tokenizer.json", kMaxTokenizerBytes)));
  return documents;
}

}  // namespace skein
