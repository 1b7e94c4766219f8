// Conversations as a template can render them: what a history holds of calls, results, thoughts and
// late system messages, in the words of the template, or as text where it has no words for it.
//
//   History history = prepare_history(format, messages, tools);
//   ... render history.messages with history.tools ...
//   put_calls(history, rendered);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dialog/chat_format.h"
#include "text/jinja/template.h"
#include "text/ordered_json.h"

namespace skein::dialog {

struct History {
  OrderedJson messages;
  OrderedJson tools;  // null where the template does not show them: a message tells them
  // Calls that the template does not write itself. Where one of them belongs its place stands in a
  // message as a word that no message has, so that its markers can be the template's own text while
  // the arguments stay data.
  std::string word;  // that all places begin with; then come a number and an x
  std::vector<std::vector<jinja::Piece>> written;  // by number
};

// `messages` and `tools` as the chat API has them: arguments are text, thoughts are in
// `reasoning_content`, `reasoning` or `thinking`. Arguments that are no JSON object are no error.
History prepare_history(const ChatFormat& format, OrderedJson messages, OrderedJson tools);

// Whether every template renders a conversation as it is: it has no tools, calls, results, thoughts
// or late system messages.
bool is_plain(const OrderedJson& messages, const OrderedJson& tools);

// Puts the calls in their places.
void put_calls(const History& history, jinja::Rendered& prompt);

// Who reads an id.
enum class IdStyle : uint8_t { kOpenAi, kAnthropic, kNine };

// The id of a call: a pure function of the request's hash and the call's number.
std::string call_id(uint64_t request, uint32_t call, IdStyle style);

// The tools of a request, for the parser and the grammar. Entries that are no functions are left.
std::vector<Tool> tools_of(const OrderedJson& tools);

}  // namespace skein::dialog
