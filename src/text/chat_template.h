// From a conversation to the text of a prompt.
//
//   SKEIN_ASSIGN(const ChatTemplate chat, ChatTemplate::create({.text = source, .bos_token =
//   "<s>"})); SKEIN_ASSIGN(const jinja::Rendered prompt, chat.render(context, {}));
//
// Immutable; any number of threads may render at once.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/template.h"
#include "text/ordered_json.h"

namespace skein {

// The parts of a model's files that are about its chats.
struct ChatTemplateSource {
  std::optional<std::string> text;      // without one the chat is ChatML
  std::optional<std::string> tool_use;  // used instead when tools are given
  std::string bos_token;                // their text; empty when the model has none
  std::string eos_token;
};

// The texts that the templates of `source` can print by themselves: their literals, bos and eos.
std::vector<std::string> literals_of(const ChatTemplateSource& source);

class ChatTemplate {
 public:
  // Errors name the template and the line.
  static Result<ChatTemplate> create(const ChatTemplateSource& source);

  // `context` is an object with messages, and whatever else the template may ask for: tools,
  // documents, add_generation_prompt, enable_thinking, ... Hugging Face always passes tools and
  // documents, null when there are none, and so should a server. bos_token and eos_token are the
  // model's unless the context has its own.
  //
  // Only pieces with from_template may yield control tokens: the template's
  // literals, the model's own bos and eos, and the usual roles. All else is data. Pieces are cut
  // by origin, not at word boundaries: plain text must be tokenized across them.
  Result<jinja::Rendered> render(const OrderedJson& context, jinja::RenderOptions options) const;

 private:
  explicit ChatTemplate(jinja::Template chat) : chat_(std::move(chat)) {}

  jinja::Template chat_;
  std::optional<jinja::Template> tool_use_;
  std::vector<std::pair<std::string, std::string>> tokens_;
};

}  // namespace skein
