// A conversation to be continued: POST /v1/chat/completions, and /v1/messages in the same words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dialog/history.h"
#include "generate/prompt.h"
#include "server/api/errors.h"
#include "server/api/fields.h"
#include "server/json.h"

namespace skein::api {

inline constexpr size_t kMaxMessages = 16'384;
inline constexpr size_t kMaxParts = 1'024;  // of one message

// kNamed: exactly one call, of one tool.
enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed };

struct ChatRequest {
  AnswerOptions options;
  // The messages as the chat API has them: role (developer is system), content as one string or
  // null, tool calls with their arguments as text, tool_call_id, name, reasoning_content.
  json::Value messages;
  // Functions in OpenAI's form; null: none. A tool that takes a text is a function with one
  // argument, kCustomInput.
  json::Value tools;
  size_t tool_bytes = 0;                  // of all of them, as JSON
  std::vector<std::string> custom_tools;  // names of those that take a text
  struct TextGrammar {
    std::string lark;
    std::optional<std::string> regex;
    std::string field;  // where it stands in the request; empty: the text is free
  };
  std::vector<TextGrammar> custom_grammars;  // of their texts
  // The numbers of the tools in the request, which may have others besides.
  std::vector<size_t> tool_places;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::vector<std::string> tool_names;  // those that may be called; empty: all. One with kNamed
  bool parallel_tool_calls = true;
  dialog::IdStyle call_ids = dialog::IdStyle::kOpenAi;
  bool parses_reasoning = true;              // else thoughts stay in the content, tags and all
  std::optional<uint32_t> reasoning_budget;  // tokens after which a thought is ended
  json::Value template_kwargs = json::Value::object();
  bool add_generation_prompt = true;
  bool continue_final_message = false;

  Conversation conversation() const;
};

Parsed<ChatRequest> parse_chat_request(std::string_view body);
Parsed<ChatRequest> read_chat_request(const json::Value& body);

// Anthropic's dialect. To count tokens, max_tokens is not needed.
Parsed<ChatRequest> parse_messages_request(std::string_view body, bool counting);

// messages, tools, chat_template_kwargs and what else shapes the prompt: also of /tokenize and
// /apply-template.
void read_conversation(const Fields& fields, ChatRequest& request);

// Tells the model of the form, where the request wants that.
void describe_form(const Fields& fields, ChatRequest& request);

// The text of a string or of a list of text parts, joined with newlines.
std::string read_content(const json::Value& content, const std::string& path, Problem& problem);

// reasoning_effort and its like: none is no thought at all, levels go to templates that read them.
void set_reasoning_effort(std::string_view effort, ChatRequest& request);
// reasoning_budget_tokens, where -1 is no limit, thinking_token_budget, and enable_thinking.
void read_thought_limits(const Fields& fields, ChatRequest& request);
// {"thinking": {"type", "budget_tokens"}}
void read_thinking(const Fields& fields, ChatRequest& request);

}  // namespace skein::api
