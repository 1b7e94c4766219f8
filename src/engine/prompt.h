// From a conversation to the ids that the model gets.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace skein {

// The steps of a template bound its work; this bounds its time, on a busy machine too.
inline constexpr TimeUs kMaxRenderUs = 5'000'000;

// Renders `context` (what ChatTemplate::render takes) at the local time. With `continues` the
// prompt ends where the last message does, so that the answer goes on from there; it fails where
// the template does not print that message's end. kDeadlineExceeded after kMaxRenderUs of the
// clock.
Result<jinja::Rendered> render_prompt(const ChatTemplate& chat, OrderedJson context, bool continues,
                                      const Clock& clock);

// Only the template's own text yields control tokens: whatever a user types stays text. The
// template writes BOS itself where the model wants one, so none is added.
Result<std::vector<TokenId>> encode_prompt(const Tokenizer& tokenizer,
                                           const jinja::Rendered& prompt);

}  // namespace skein
