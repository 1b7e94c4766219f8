#include "engine/loading/load_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "engine/loading/gguf_tokenizer.h"
#include "text/markers.h"
#include "text/tokenizer_json.h"

namespace skein {
namespace {

// How known families end a turn, whether or not their files say so.
constexpr std::string_view kTurnEnds[] = {
    "<|im_end|>",             // ChatML: Qwen, SmolLM, Yi, ...
    "<|eot_id|>",             // Llama-3
    "<|eom_id|>",             // Llama-3.1, after a tool call
    "<|eot|>",                // Llama-4
    "<end_of_turn>",          // Gemma
    "<turn|>",                // Gemma 4
    "<|end|>",                // Phi-3
    "<|return|>",             // gpt-oss
    "<|call|>",               // gpt-oss, after a tool call
    "<|endoftext|>",          // GPT-2 and many after it
    "<|end_of_text|>",        // Llama-3, Granite
    "<｜end▁of▁sentence｜>",  // DeepSeek
    "<EOT>",
    "<eos>",
};

using StopSet = std::set<TokenId>;

// The tokens of kTurnEnds that the file added to its vocabulary; a normal piece is only text.
void add_turn_ends(const TokenizerSpec& spec, StopSet& stops) {
  StopSet harmony;  // gpt-oss ends messages with <|end|> and answers with <|return|> or <|call|>
  TokenId message_end = kNoToken;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = spec.types.empty() ? TokenType::kNormal : spec.types[i];
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    const std::string_view piece = spec.pieces[i];
    if (std::find(std::begin(kTurnEnds), std::end(kTurnEnds), piece) == std::end(kTurnEnds))
      continue;
    stops.insert(id);
    if (piece == "<|end|>") message_end = id;
    if (piece == "<|return|>" || piece == "<|call|>") harmony.insert(id);
  }
  if (harmony.size() == 2) stops.erase(message_end);
}

// Users must not be able to type what ends an answer.
void make_control(const StopSet& stops, TokenizerSpec& spec) {
  spec.types.resize(spec.pieces.size(), TokenType::kNormal);
  for (const TokenId id : stops) spec.types[static_cast<size_t>(id)] = TokenType::kControl;
  for (AddedToken& token : spec.added) token.special |= stops.count(token.id) != 0;
  // GPT-2's descendants name their end of text as the unknown token too.
  if (stops.count(spec.unknown) != 0) spec.unknown = kNoToken;
}

Result<LoadedTokenizer> finish(TokenizerSpec spec, TokenId bos, TokenId eos, const StopSet& stops) {
  SKEIN_ASSIGN(Tokenizer tokenizer, Tokenizer::create(std::move(spec)));
  return LoadedTokenizer{std::move(tokenizer), bos, eos, {stops.begin(), stops.end()}};
}

// GGUF types tokens but keeps no list of the added ones: those that are no normal pieces are.
// Phi-3's take the white space behind them, which the file cannot say.
void add_typed_tokens(bool is_phi3, TokenizerSpec& spec) {
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const TokenType type = spec.types[i];
    if (type != TokenType::kControl && type != TokenType::kUserDefined &&
        type != TokenType::kUnknown) {
      continue;
    }
    AddedToken token;
    token.id = static_cast<TokenId>(i);
    token.text = spec.pieces[i];
    token.special = type != TokenType::kUserDefined;
    token.rstrip =
        is_phi3 && token.text != "<unk>" && token.text != "<s>" && token.text != "<|endoftext|>";
    spec.added.push_back(std::move(token));
  }
}

// Without a template that can be read, the spelling alone decides.
void guard(const WeightSource& source, TokenizerSpec& spec) {
  const auto chat = read_chat_template(source);
  std::vector<std::string> literals;
  if (chat.ok()) literals = literals_of(*chat);
  guard_markers(literals, spec);
}

// The file's tokenizer with all that it leaves to be known of it, and what ends an answer.
Result<GgufTokenizer> read_gguf(const WeightSource& source, StopSet& stops) {
  const gguf::Metadata& metadata = source.metadata();
  SKEIN_ASSIGN(GgufTokenizer file, read_gguf_tokenizer(metadata));
  for (const TokenId id : {file.ids.eos, file.ids.eot, file.ids.eom}) {
    if (id != kNoToken) stops.insert(id);
  }
  add_turn_ends(file.spec, stops);
  make_control(stops, file.spec);
  SKEIN_ASSIGN(const std::string_view family,
               metadata.get_or<std::string_view>("general.architecture", ""));
  const bool is_sentencepiece = file.spec.model == TokenizerSpec::Model::kSpmBpe;
  add_typed_tokens(is_sentencepiece && family == "phi3", file.spec);
  return file;
}

Result<LoadedTokenizer> load_gguf(const WeightSource& source) {
  StopSet stops;
  SKEIN_ASSIGN(GgufTokenizer file, read_gguf(source, stops));
  guard(source, file.spec);
  return finish(std::move(file.spec), file.ids.bos, file.ids.eos, stops);
}

// `key` of a config, which is an id, a list of ids, or null.
Status add_ids(const Json& config, std::string_view file, std::string_view key, size_t vocabulary,
               StopSet& stops) {
  const auto found = config.is_object() ? config.find(key) : config.end();
  if (!config.is_object() || found == config.end() || found->is_null()) return {};
  const Json list = found->is_array() ? *found : Json::array({*found});
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocabulary) {
      return data_loss("{}: {} has {}, the vocabulary has {} tokens", file, key, id.dump(),
                       vocabulary);
    }
    stops.insert(id.get<TokenId>());
  }
  return {};
}

// A token that tokenizer_config.json names by its text, plain or in an object.
TokenId named_token(const Json& config, std::string_view key, const TokenizerSpec& spec) {
  const auto found = config.is_object() ? config.find(key) : config.end();
  if (!config.is_object() || found == config.end()) return kNoToken;
  const Json& text =
      found->is_object() && found->contains("content") ? found->at("content") : *found;
  if (!text.is_string()) return kNoToken;
  for (const AddedToken& token : spec.added) {
    if (token.text == text.get_ref<const std::string&>()) return token.id;
  }
  return kNoToken;
}

Result<LoadedTokenizer> load_folder(const WeightSource& source) {
  const HfDocuments& documents = source.documents();
  const std::optional<std::string_view> text = documents.tokenizer_text();
  if (!text) return not_found("the folder has no tokenizer.json");
  SKEIN_ASSIGN(TokenizerSpec spec, parse_tokenizer_json(*text));
  StopSet stops;
  const size_t count = spec.pieces.size();
  SKEIN_TRY(
      add_ids(documents.generation_config, "generation_config.json", "eos_token_id", count, stops));
  SKEIN_TRY(add_ids(documents.config, "config.json", "eos_token_id", count, stops));
  const TokenId bos = named_token(documents.tokenizer_config, "bos_token", spec);
  TokenId eos = named_token(documents.tokenizer_config, "eos_token", spec);
  if (eos != kNoToken) stops.insert(eos);
  if (eos == kNoToken && !stops.empty()) eos = *stops.begin();
  add_turn_ends(spec, stops);
  make_control(stops, spec);
  guard(source, spec);
  return finish(std::move(spec), bos, eos, stops);
}

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

Result<LoadedTokenizer> load_tokenizer(const WeightSource& source) {
  Result<LoadedTokenizer> loaded =
      source.kind() == SourceKind::kGguf ? load_gguf(source) : load_folder(source);
  if (loaded.ok()) return loaded;
  return Status(loaded.status().code(), source.path() + ": " + loaded.message());
}

Result<TokenizerSpec> read_tokenizer_spec(const WeightSource& source) {
  StopSet stops;
  Result<GgufTokenizer> file = read_gguf(source, stops);
  if (file.ok()) return std::move(file->spec);
  return Status(file.status().code(), source.path() + ": " + file.message());
}

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
