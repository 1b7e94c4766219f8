#include "engine/prompt.h"

#include <ctime>
#include <string>
#include <utility>

namespace skein {
namespace {

using Context = OrderedJson;

// The text that a message ends with: its content, or the last part of it. Null when it has none.
Context* end_of(Context& message) {
  if (!message.is_object() || !message.contains("content")) return nullptr;
  Context* content = &message["content"];
  if (content->is_array() && !content->empty()) {
    Context& part = content->back();
    content = part.is_object() && part.contains("text") ? &part["text"] : &part;
  }
  return content->is_string() ? content : nullptr;
}

// Puts a mark behind the last message. A template may trim, cut or repeat what it prints, so the
// place of a text cannot be found by the text itself: "\n" or "e" is everywhere.
Result<std::string> mark_end(Context& context) {
  Context* messages = context.contains("messages") ? &context["messages"] : nullptr;
  const bool has_any = messages != nullptr && messages->is_array() && !messages->empty();
  Context* end = has_any ? end_of(messages->back()) : nullptr;
  if (end == nullptr) return invalid_argument("the last message has no text to continue");
  const std::string all = context.dump(-1, ' ', false, Context::error_handler_t::replace);
  std::string mark = "continue-0";
  for (int i = 1; all.find(mark) != std::string::npos; ++i) {
    mark = "continue-" + std::to_string(i);
  }
  end->get_ref<std::string&>() += mark;
  return mark;
}

// Ends the prompt before the last mark that was printed as data.
Status cut_at(std::string_view mark, jinja::Rendered& prompt) {
  auto& segments = prompt.segments;
  for (size_t i = segments.size(); i-- > 0;) {
    if (segments[i].from_template) continue;
    const size_t at = segments[i].text.rfind(mark);
    if (at == std::string::npos) continue;
    segments[i].text.resize(at);
    segments.resize(at == 0 ? i : i + 1);
    return {};
  }
  return invalid_argument(
      "it does not print the end of the last message, so that message cannot be continued");
}

}  // namespace

Result<jinja::Rendered> render_prompt(const ChatTemplate& chat, Context context, bool continues,
                                      const Clock& clock) {
  jinja::RenderOptions options;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  options.now = *localtime_r(&now, &local);
  const TimeUs deadline = clock.now() + kMaxRenderUs;
  options.limits.expired = [&clock, deadline] { return clock.now() >= deadline; };
  if (!continues) return chat.render(context, options);
  SKEIN_ASSIGN(const std::string mark, mark_end(context));
  SKEIN_ASSIGN(jinja::Rendered prompt, chat.render(context, options));
  SKEIN_TRY(cut_at(mark, prompt));
  return prompt;
}

Result<std::vector<TokenId>> encode_prompt(const Tokenizer& tokenizer,
                                           const jinja::Rendered& prompt) {
  std::vector<TextPart> parts;
  parts.reserve(prompt.segments.size());
  for (const jinja::Segment& segment : prompt.segments) {
    parts.push_back({segment.text, segment.from_template});
  }
  return tokenizer.encode(parts, false);
}

}  // namespace skein
