#include "generate/prompt.h"

#include <ctime>
#include <string>
#include <utility>

#include "dialog/answer_parser.h"
#include "dialog/history.h"
#include "text/unused_word.h"

namespace skein {
namespace {

// Tokens beyond the context up to which a text is still counted, so that whoever asks is told how
// many it has.
constexpr uint64_t kSlackTokens = 1024;

// The text that a message ends with: its content, or the last part of it. Null when it has none.
OrderedJson* end_of(OrderedJson& message) {
  if (!message.is_object() || !message.contains("content")) return nullptr;
  OrderedJson* content = &message["content"];
  if (content->is_array() && !content->empty()) {
    OrderedJson& part = content->back();
    content = part.is_object() && part.contains("text") ? &part["text"] : &part;
  }
  return content->is_string() ? content : nullptr;
}

// Puts a mark behind the last message. A template may trim, cut or repeat what it prints, so the
// place of a text cannot be found by the text itself: "\n" or "e" is everywhere.
Result<std::string> mark_end(OrderedJson& context) {
  OrderedJson* messages = context.contains("messages") ? &context["messages"] : nullptr;
  const bool has_any = messages != nullptr && messages->is_array() && !messages->empty();
  OrderedJson* end = has_any ? end_of(messages->back()) : nullptr;
  if (end == nullptr) return invalid_argument("the last message has no text to continue");
  const std::string all = context.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  std::string mark = unused_word("continue", all);
  end->get_ref<std::string&>() += mark;
  return mark;
}

// Ends the prompt before the last mark that was printed as data.
Status cut_at(std::string_view mark, jinja::Rendered& prompt) {
  auto& pieces = prompt.pieces;
  for (size_t i = pieces.size(); i-- > 0;) {
    if (pieces[i].from_template) continue;
    const size_t at = pieces[i].text.rfind(mark);
    if (at == std::string::npos) continue;
    pieces[i].text.resize(at);
    pieces.resize(at == 0 ? i : i + 1);
    return {};
  }
  return invalid_argument(
      "it does not print the end of the last message, so that message cannot be continued");
}

}  // namespace

OrderedJson chat_context(OrderedJson messages) {
  // Not a null that becomes an object: where memory is short meanwhile, its destructor crashes.
  OrderedJson context = OrderedJson::object();
  context["messages"] = std::move(messages);
  context["tools"] = nullptr;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = true;
  return context;
}

Result<jinja::Rendered> render_prompt(const ChatTemplate& chat, Conversation conversation,
                                      const Clock& clock, const dialog::ChatFormat* format) {
  jinja::RenderOptions options;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  options.now = *localtime_r(&now, &local);
  const TimeUs deadline = clock.now() + kMaxRenderUs;
  options.limits.expired = [&clock, deadline] { return clock.now() >= deadline; };
  OrderedJson& context = conversation.context;
  std::string mark;
  if (conversation.continues) {
    SKEIN_ASSIGN(mark, mark_end(context));
  }
  dialog::History history;
  if (format != nullptr && context.contains("messages") &&
      !dialog::is_plain(context["messages"], context["tools"])) {
    history = dialog::prepare_history(*format, std::move(context["messages"]),
                                      std::move(context["tools"]));
    context["messages"] = std::move(history.messages);
    context["tools"] = std::move(history.tools);
  }
  SKEIN_ASSIGN(jinja::Rendered prompt, chat.render(context, options));
  dialog::put_calls(history, prompt);
  if (conversation.continues) SKEIN_TRY(cut_at(mark, prompt));
  return prompt;
}

Result<std::vector<TokenId>> encode_prompt(const Tokenizer& tokenizer,
                                           const jinja::Rendered& prompt) {
  std::vector<TextPart> parts;
  parts.reserve(prompt.pieces.size());
  for (const jinja::Piece& piece : prompt.pieces) {
    parts.push_back({piece.text, piece.from_template});
  }
  return tokenizer.encode(parts, false);
}

Result<jinja::Rendered> PromptBuilder::render(Conversation conversation) const {
  const ChatTemplate* chat = model_.chat_template();
  if (chat == nullptr) return model_.chat_template_status();
  return render_prompt(*chat, std::move(conversation), clock_, model_.chat_format().get());
}

Result<std::vector<TokenId>> PromptBuilder::encode(const jinja::Rendered& prompt) const {
  uint64_t bytes = 0;
  for (const jinja::Piece& piece : prompt.pieces) bytes += piece.text.size();
  SKEIN_TRY(check_bytes(bytes));
  return encode_prompt(model_.tokenizer()->tokenizer, prompt);
}

Result<std::vector<TokenId>> PromptBuilder::encode_chat(Conversation conversation) const {
  SKEIN_ASSIGN(const jinja::Rendered prompt, render(std::move(conversation)));
  return encode(prompt);
}

bool PromptBuilder::opens_thought(const jinja::Rendered& prompt) const {
  constexpr size_t kMarkerBytes = 256;
  std::string end;
  for (size_t i = prompt.pieces.size(); i-- > 0 && end.size() < kMarkerBytes;) {
    const std::string& text = prompt.pieces[i].text;
    end.insert(0, text, text.size() > kMarkerBytes ? text.size() - kMarkerBytes : 0);
  }
  return dialog::opens_reasoning(*model_.chat_format(), end);
}

Result<std::vector<TokenId>> PromptBuilder::encode_text(std::string_view text,
                                                        bool add_special) const {
  SKEIN_TRY(check_bytes(text.size()));
  return model_.tokenizer()->tokenizer.encode(text, {.add_special = add_special});
}

Status PromptBuilder::check_bytes(uint64_t bytes) const {
  if (model_.tokenizer() == nullptr) return model_.tokenizer_status();
  const uint64_t limit =
      (max_tokens_ + kSlackTokens) * model_.tokenizer()->tokenizer.longest_piece_bytes();
  if (bytes <= limit) return {};
  return out_of_range("The text has {} bytes; with a context of {} tokens at most {} are taken.",
                      bytes, max_tokens_, limit);
}

Status PromptBuilder::check_count(uint64_t tokens) const {
  const uint64_t limit = max_tokens_ + kSlackTokens;
  if (tokens <= limit) return {};
  return out_of_range("There are {} tokens; with a context of {} at most {} are taken.", tokens,
                      max_tokens_, limit);
}

}  // namespace skein
