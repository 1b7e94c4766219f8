// OpenAI's Responses in the words of ChatRequest: POST /v1/responses. Nothing is stored, so every
// request brings the whole conversation; what would need an earlier one is refused by name.
#pragma once

#include <string_view>

#include "server/api/chat_request.h"

namespace skein::api {

// What stands before a thought where clients want it sealed. Nothing is: they send it back as it
// is, where they would leave out a thought that they can read.
inline constexpr std::string_view kSealedThought = "skein:";

// To count tokens, the fields about the answer are not looked at.
Parsed<ChatRequest> parse_responses_request(std::string_view body, bool counting);
Parsed<ChatRequest> read_responses_request(const json::Value& body, bool counting);

}  // namespace skein::api
