#include "text/tokenizer_json_parts.h"

namespace skein::tokenizer_json {

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Status read(const Json& object, std::string_view key, bool& out) {
  const Json* value = member(object, key);
  if (value == nullptr) return {};
  if (!value->is_boolean()) {
    return data_loss("tokenizer.json: '{}' is a {}, not true or false", key, value->type_name());
  }
  out = value->get<bool>();
  return {};
}

Status read(const Json& object, std::string_view key, std::string& out) {
  const Json* value = member(object, key);
  if (value == nullptr) return {};
  if (!value->is_string()) {
    return data_loss("tokenizer.json: '{}' is a {}, not a string", key, value->type_name());
  }
  out = value->get_ref<const std::string&>();
  return {};
}

Result<std::string> type_of(const Json& part, std::string_view what) {
  std::string type;
  SKEIN_TRY(read(part, "type", type));
  if (type.empty()) return data_loss("tokenizer.json: a {} has no type", what);
  return type;
}

Result<const Json*> list_of(const Json& part, std::string_view key) {
  const Json* list = member(part, key);
  if (list == nullptr || !list->is_array()) {
    return data_loss("tokenizer.json: a Sequence has no list '{}'", key);
  }
  return list;
}

Result<Pattern> pattern_of(const Json& part) {
  const Json* pattern = member(part, "pattern");
  Pattern out;
  if (pattern != nullptr && pattern->is_object()) {
    SKEIN_TRY(read(*pattern, "String", out.text));
    if (!out.text.empty()) return out;
    SKEIN_TRY(read(*pattern, "Regex", out.text));
    out.is_regex = true;
    if (!out.text.empty()) return out;
  }
  return data_loss("tokenizer.json: a pattern is neither a String nor a Regex");
}

Result<PreTokenizerStep::Prepend> prepend_of(const Json& part) {
  std::string scheme;
  bool add_prefix_space = true;
  SKEIN_TRY(read(part, "prepend_scheme", scheme));
  SKEIN_TRY(read(part, "add_prefix_space", add_prefix_space));
  if (scheme.empty()) scheme = add_prefix_space ? "always" : "never";
  if (scheme == "always") return PreTokenizerStep::Prepend::kAlways;
  if (scheme == "first") return PreTokenizerStep::Prepend::kFirst;
  if (scheme == "never") return PreTokenizerStep::Prepend::kNever;
  return data_loss("tokenizer.json: the prepend_scheme '{}' of a Metaspace is not known", scheme);
}

Status check_replacement(const Json& part) {
  std::string replacement(kMetaspace);
  SKEIN_TRY(read(part, "replacement", replacement));
  if (replacement == kMetaspace) return {};
  return unimplemented("tokenizer.json: a Metaspace with the replacement '{}'", replacement);
}

}  // namespace skein::tokenizer_json
