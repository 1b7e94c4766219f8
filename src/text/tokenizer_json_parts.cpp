#include "text/tokenizer_json_parts.h"

#include <utility>

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

Status read_each(const Json& part, std::string_view key, TokenizerSpec& spec,
                 Status (*read_part)(const Json*, TokenizerSpec&)) {
  const Json* list = member(part, key);
  if (list == nullptr || !list->is_array()) {
    return data_loss("tokenizer.json: a Sequence has no list '{}'", key);
  }
  for (const Json& item : *list) SKEIN_TRY(read_part(&item, spec));
  return {};
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

namespace {

Status add_template_token(const Json& part, std::string_view name, std::vector<TokenId>& out) {
  const Json* tokens = member(part, "special_tokens");
  const Json* token = tokens == nullptr ? nullptr : member(*tokens, name);
  const Json* ids = token == nullptr ? nullptr : member(*token, "ids");
  if (ids == nullptr || !ids->is_array()) {
    return data_loss("tokenizer.json: the template's token '{}' has no ids", name);
  }
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxVocabulary) {
      return data_loss("tokenizer.json: the template's token '{}' has an id that is no token",
                       name);
    }
    out.push_back(id.get<TokenId>());
  }
  return {};
}

Status read_template(const Json& part, TokenizerSpec& spec) {
  const Json* single = member(part, "single");
  if (single == nullptr || !single->is_array()) {
    return data_loss("tokenizer.json: a TemplateProcessing has no list 'single'");
  }
  bool after_text = false;
  for (const Json& item : *single) {
    if (member(item, "Sequence") != nullptr) {
      after_text = true;
    } else if (const Json* token = member(item, "SpecialToken")) {
      std::string name;
      SKEIN_TRY(read(*token, "id", name));
      SKEIN_TRY(add_template_token(part, name, after_text ? spec.suffix : spec.prefix));
    }
  }
  return {};
}

// RobertaProcessing and BertProcessing: [text, id] before and after.
Status read_pair_processing(const Json& part, TokenizerSpec& spec) {
  for (const auto& [key, out] : {std::pair{"cls", &spec.prefix}, std::pair{"sep", &spec.suffix}}) {
    const Json* pair = member(part, key);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2 ||
        !(*pair)[1].is_number_unsigned() || (*pair)[1].get<uint64_t>() >= kMaxVocabulary) {
      return data_loss("tokenizer.json: the post-processor's '{}' is not a text and an id", key);
    }
    out->push_back((*pair)[1].get<TokenId>());
  }
  return {};
}

Status read_decoder_replace(const Json& part, TokenizerSpec& spec) {
  SKEIN_ASSIGN(const Pattern pattern, pattern_of(part));
  std::string content;
  SKEIN_TRY(read(part, "content", content));
  if (pattern.text != kMetaspace || content != " ") {
    return unimplemented("tokenizer.json: the decoder replaces '{}' by '{}'", pattern.text,
                         content);
  }
  spec.decoder = TokenizerSpec::Decoder::kMetaspace;
  return {};
}

Status read_decoder_strip(const Json& part, TokenizerSpec& spec) {
  std::string content;
  SKEIN_TRY(read(part, "content", content));
  const Json* start = member(part, "start");
  const Json* stop = member(part, "stop");
  const bool starts = start != nullptr && *start == 1;
  const bool stops = stop != nullptr && *stop != 0;
  if (content != " " || stops) {
    return unimplemented(
        "tokenizer.json: the decoder strips something else than one space at the start");
  }
  spec.strip_leading_space = starts;
  return {};
}

}  // namespace

Status read_decoder(const Json* part, TokenizerSpec& spec) {
  if (part == nullptr) return {};
  SKEIN_ASSIGN(const std::string type, type_of(*part, "decoder"));
  if (type == "Sequence") return read_each(*part, "decoders", spec, read_decoder);
  if (type == "ByteLevel") {
    spec.decoder = TokenizerSpec::Decoder::kByteLevel;
    return {};
  }
  if (type == "Metaspace") {
    SKEIN_TRY(check_replacement(*part));
    SKEIN_ASSIGN(const PreTokenizerStep::Prepend prepend, prepend_of(*part));
    spec.decoder = TokenizerSpec::Decoder::kMetaspace;
    spec.strip_leading_space = prepend != PreTokenizerStep::Prepend::kNever;
    return {};
  }
  if (type == "WordPiece") {
    spec.decoder = TokenizerSpec::Decoder::kWordPiece;
    spec.strip_leading_space = true;
    spec.joins_punctuation = true;
    return read(*part, "cleanup", spec.joins_punctuation);
  }
  if (type == "Replace") return read_decoder_replace(*part, spec);
  if (type == "Strip") return read_decoder_strip(*part, spec);
  // Byte pieces are bytes anyway, and so are their neighbours joined.
  if (type == "ByteFallback" || type == "Fuse") return {};
  return unimplemented("tokenizer.json: the decoder '{}' is not supported", type);
}

Status read_post_processor(const Json* part, TokenizerSpec& spec) {
  if (part == nullptr) return {};
  SKEIN_ASSIGN(const std::string type, type_of(*part, "post-processor"));
  if (type == "Sequence") return read_each(*part, "processors", spec, read_post_processor);
  if (type == "TemplateProcessing") return read_template(*part, spec);
  if (type == "RobertaProcessing" || type == "BertProcessing")
    return read_pair_processing(*part, spec);
  if (type == "ByteLevel") return {};  // changes offsets only
  return unimplemented("tokenizer.json: the post-processor '{}' is not supported", type);
}

}  // namespace skein::tokenizer_json
