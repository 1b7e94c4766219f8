// The tools that a request brings and what it says about calling them, in everybody's words. All of
// it ends in ChatRequest; what is wrong with a tool is invalid_tool.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/api/chat_request.h"
#include "server/api/fields.h"

namespace skein::api {

inline constexpr size_t kMaxTools = 128;
inline constexpr size_t kMaxToolBytes = size_t{1} << 20;  // of all tools together, as JSON

// The argument that a tool's text is, where it takes a text instead of JSON.
inline constexpr std::string_view kCustomInput = "input";

// Hands every tool of the list `name` to `take`, which may add it; too many of them, or too many
// bytes of them, are schema_too_complex.
void for_each_tool(const Fields& fields, std::string_view name, ChatRequest& request,
                   const std::function<void(const json::Value&, const std::string&)>& take);

// {"name", "description", "strict"} and a schema in the field of that name.
void add_function(const Fields& definition, std::string_view schema_field, ChatRequest& request);
// {"name", "description", "format"}: a tool that takes a text.
void add_custom_tool(const Fields& definition, ChatRequest& request);

// OpenAI's: tools, tool_choice and parallel_tool_calls, or the old functions and function_call.
void read_tools(const Fields& fields, ChatRequest& request);
// A tool_choice of Chat Completions or of Responses, whose names are not nested.
void read_tool_choice(const Fields& fields, ChatRequest& request);
// After tools and choice: what is forced must be there, and names must be known.
void check_tool_choice(const Fields& fields, const ChatRequest& request);

}  // namespace skein::api
