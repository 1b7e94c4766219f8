// Text to be continued: POST /v1/completions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api/errors.h"
#include "server/api/fields.h"
#include "server/api/prompt_fields.h"
#include "server/json.h"

namespace skein::api {

inline constexpr size_t kMaxPrompts = 128;
inline constexpr size_t kMaxCompletions = 512;  // prompts x n
inline constexpr uint32_t kDefaultCompletionTokens = 16;

struct CompletionRequest {
  AnswerOptions options;  // max_tokens is always set
  std::vector<Prompt> prompts;
  bool echo = false;
};

// A suffix is refused with 501.
Parsed<CompletionRequest> parse_completion_request(std::string_view body);
Parsed<CompletionRequest> read_completion_request(const json::Value& body);

}  // namespace skein::api
