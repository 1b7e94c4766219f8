// The files beside the weights in a Hugging Face folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/status.h"
#include "format/json.h"

namespace skein {

inline constexpr size_t kMaxDocumentBytes = size_t{16} << 20;
inline constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;
inline constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

// Immutable once loaded.
struct HfDocuments {
  Json config;             // config.json, always an object
  Json generation_config;  // an object, or null when the folder has none
  Json tokenizer_config;   // likewise
  // sentence-transformers': what a model that embeds is made of.
  Json modules;              // modules.json, an array; null when the folder has none
  Json pooling;              // the config of its Pooling module; null likewise
  std::string pooling_file;  // where it stands: "1_Pooling/config.json"
  std::optional<std::string> chat_template;  // chat_template.jinja, as it is
  std::optional<MappedFile> tokenizer_file;  // tokenizer.json

  // tokenizer.json as it is: its reader wants the text of it, and a document would be ten times as
  // large. nullopt when the folder has none.
  std::optional<std::string_view> tokenizer_text() const;

  // tokenizer.json, parsed at every call. kNotFound when the folder has none.
  Result<Json> tokenizer() const;
};

// Reads what is there. kNotFound without config.json; a file that is there must be sound.
Result<HfDocuments> load_documents(const std::string& folder);

// A small file that must be an object; kNotFound when it is not there.
Result<Json> load_json_object(const std::string& path, size_t limit);

}  // namespace skein
