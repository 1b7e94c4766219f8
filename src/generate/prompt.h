// Messages or text in, the ids that a model gets out.
//
// Every prompt is made here, whoever asks for it: the server's answers, libskein and the command
// line. So what a user typed stays marked as data in one place, and what a model's files lack is an
// error in one place.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "dialog/chat_format.h"
#include "engine/loading/loaded_model.h"
#include "text/chat_template.h"
#include "text/ordered_json.h"
#include "text/tokenizer.h"

namespace skein {

// The steps of a template bound its work; this bounds its time, on a busy machine too.
inline constexpr TimeUs kMaxRenderUs = 5'000'000;

struct Conversation {
  OrderedJson context;  // as ChatTemplate::render takes it; chat_context() makes one
  // The answer goes on from the end of the last message instead of beginning a message.
  bool continues = false;
};

// The context of a plain chat, with the names that Hugging Face always passes.
OrderedJson chat_context(OrderedJson messages);

// Renders at the local time. What a template cannot render of a history is put in its words, or in
// those of `format`; without one it is left as it is. A conversation that is continued ends where
// the text of its last message does; that place is found among the pieces that are data, never in
// the template's own text, and a template that does not print it is an error. kDeadlineExceeded
// after kMaxRenderUs of the clock.
Result<jinja::Rendered> render_prompt(const ChatTemplate& chat, Conversation conversation,
                                      const Clock& clock,
                                      const dialog::ChatFormat* format = nullptr);

// Only the template's own text yields control tokens: whatever a user types stays text. The
// template writes BOS itself where the model wants one, so none is added.
Result<std::vector<TokenId>> encode_prompt(const Tokenizer& tokenizer,
                                           const jinja::Rendered& prompt);

// The prompts of one model. A view: model and clock outlive it. Any thread.
class PromptBuilder {
 public:
  // `max_tokens`: of one request, prompt and answer.
  PromptBuilder(const LoadedModel& model, uint64_t max_tokens, const Clock& clock)
      : model_(model), max_tokens_(max_tokens), clock_(clock) {}

  // These fail with the model's own reason where its files hold no chat template, or no tokenizer,
  // that can be used.
  Result<jinja::Rendered> render(Conversation conversation) const;
  Result<std::vector<TokenId>> encode(const jinja::Rendered& prompt) const;
  Result<std::vector<TokenId>> encode_chat(Conversation conversation) const;
  // Whether a prompt ends inside a thought.
  bool opens_thought(const jinja::Rendered& prompt) const;
  // A user's text: control tokens that it spells out are text. `add_special`: with what the model
  // expects around a text.
  Result<std::vector<TokenId>> encode_text(std::string_view text, bool add_special = true) const;

  // Before text is tokenized: no prompt that fits the context can have more bytes than its tokens
  // can stand for. kOutOfRange with both numbers; encode functions check it themselves.
  Status check_bytes(uint64_t bytes) const;
  // The same of ids that are to become text.
  Status check_count(uint64_t tokens) const;

 private:
  const LoadedModel& model_;
  const uint64_t max_tokens_;
  const Clock& clock_;
};

}  // namespace skein
