// A conversation to be continued: POST /v1/chat/completions, and /v1/messages in the same words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "generate/prompt.h"
#include "server/api/errors.h"
#include "server/api/fields.h"
#include "server/json.h"

namespace skein::api {

inline constexpr size_t kMaxMessages = 16'384;
inline constexpr size_t kMaxParts = 1'024;  // of one message
inline constexpr size_t kMaxTools = 128;

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed };

struct ChatRequest {
  AnswerOptions options;
  // The messages as templates want them: role (developer is system), content as one string or null,
  // tool calls with their arguments as objects, tool_call_id, name, reasoning_content.
  json::Value messages;
  json::Value tools;  // OpenAI's form; null: none
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;  // with kNamed
  bool parallel_tool_calls = true;
  json::Value template_kwargs = json::Value::object();
  bool add_generation_prompt = true;
  bool continue_final_message = false;

  Conversation conversation() const;
};

Parsed<ChatRequest> parse_chat_request(std::string_view body);
Parsed<ChatRequest> read_chat_request(const json::Value& body);

// Anthropic's dialect. To count tokens, max_tokens is not needed.
Parsed<ChatRequest> parse_messages_request(std::string_view body, bool counting);

// Why a well-formed request cannot be served (501); nothing when it can.
Problem find_unsupported(const ChatRequest& request);

// messages, tools, chat_template_kwargs and what else shapes the prompt: also of /tokenize and
// /apply-template.
void read_conversation(const Fields& fields, ChatRequest& request);

// Tells the model of the form, where the request wants that.
void describe_form(const Fields& fields, ChatRequest& request);

// The text of a string or of a list of text parts, joined with newlines.
std::string read_content(const json::Value& content, const std::string& path, Problem& problem);

// {"name", "description", "parameters"} of a function as an entry of ChatRequest::tools.
json::Value function_tool(std::string name, const json::Value* description,
                          const json::Value* parameters);

}  // namespace skein::api
