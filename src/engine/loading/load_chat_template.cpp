#include "engine/loading/load_chat_template.h"

namespace skein {
namespace {

// A token of tokenizer_config.json: its text, or an object with the text as "content".
Result<std::string> folder_token(const Json& config, const char* key) {
  if (!config.is_object()) return std::string();
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get_ref<const std::string&>();
  if (found->is_object()) {
    const auto content = found->find("content");
    if (content != found->end() && content->is_string()) {
      return content->get_ref<const std::string&>();
    }
  }
  return invalid_argument("tokenizer_config.json: {} is neither a string nor has it content", key);
}

// A token of a GGUF file: the text at the id's place in the vocabulary.
Result<std::string> gguf_token(const gguf::Metadata& metadata, std::string_view key) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  if (!metadata.has(key) || !metadata.has(kTokens)) return std::string();
  SKEIN_ASSIGN(const uint32_t id, metadata.get<uint32_t>(key));
  SKEIN_ASSIGN(const gguf::StringArray tokens, metadata.get<gguf::StringArray>(kTokens));
  if (id >= tokens.size()) {
    return out_of_range("{} is {}, the vocabulary has {} tokens", key, id, tokens.size());
  }
  return std::string(tokens[id]);
}

}  // namespace

Result<ChatTemplateSource> read_chat_template(const WeightSource& source) {
  ChatTemplateSource out;
  SKEIN_ASSIGN(const auto text, source.chat_template());
  SKEIN_ASSIGN(const auto tool_use, source.chat_template("tool_use"));
  if (text) out.text = std::string(*text);
  if (tool_use) out.tool_use = std::string(*tool_use);
  if (source.kind() == SourceKind::kGguf) {
    SKEIN_ASSIGN(out.bos_token, gguf_token(source.metadata(), "tokenizer.ggml.bos_token_id"));
    SKEIN_ASSIGN(out.eos_token, gguf_token(source.metadata(), "tokenizer.ggml.eos_token_id"));
  } else {
    SKEIN_ASSIGN(out.bos_token, folder_token(source.documents().tokenizer_config, "bos_token"));
    SKEIN_ASSIGN(out.eos_token, folder_token(source.documents().tokenizer_config, "eos_token"));
  }
  return out;
}

Result<ChatTemplate> load_chat_template(const WeightSource& source) {
  SKEIN_ASSIGN(const ChatTemplateSource text, read_chat_template(source));
  Result<ChatTemplate> chat = ChatTemplate::create(text);
  if (chat.ok()) return chat;
  return Status(chat.status().code(), fmt::format("{}: {}", source.path(), chat.message()));
}

}  // namespace skein
