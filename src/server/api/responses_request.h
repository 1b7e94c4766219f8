// OpenAI's Responses in the words of ChatRequest: POST /v1/responses. A request brings its whole
// conversation, or it names the response that it continues: then what came before is read in front
// of its input, as if the request had brought it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api/chat_request.h"

namespace skein::api {

// A thought begins with this where clients want it sealed. Nothing is: they send it back as it is,
// where they would leave out a thought that they can read.
inline constexpr std::string_view kSealedThought = "skein:";

// How a request is read.
struct ResponsesTerms {
  bool counting = false;         // tokens: the fields about the answer are not looked at
  bool can_keep = false;         // else nothing is kept, and no response can be continued
  bool keeps_by_default = true;  // where the request does not say
  // Lists of items, as JSON text: what the response that is continued had before it and said.
  std::vector<std::string> before = {};
};

Parsed<ChatRequest> parse_responses_request(std::string_view body, const ResponsesTerms& terms);
Parsed<ChatRequest> read_responses_request(const json::Value& body, const ResponsesTerms& terms);

// The id of the response that a request continues; empty: none.
Parsed<std::string> read_previous_response(const json::Value& body, bool can_keep);

// A list of items that the store has. What is wrong with one is the server's fault.
Parsed<json::Value> read_kept_items(std::string_view list);

// An item as a client is shown it: with an id, type and status, and a message's content in parts.
// One without an id gets one that follows from the response and its `place`.
json::Value shown_item(json::Value item, std::string_view response_id, size_t place);

}  // namespace skein::api
