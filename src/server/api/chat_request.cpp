#include "server/api/chat_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/api/form_fields.h"
#include "server/api/tool_fields.h"

namespace skein::api {
namespace {

// A client may tell a template these: names that known templates use, and scalars only, so that no
// request can make a template do more work than its messages do.
constexpr std::array<std::string_view, 12> kTemplateKwargs = {
    "enable_thinking", "thinking",         "thinking_budget", "thinking_mode",
    "keep_thinking",   "clear_thinking",   "reasoning",       "reasoning_effort",
    "date_string",     "documents_prompt", "model_identity",  "add_vision_id",
};

void read_template_kwargs(const Fields& fields, ChatRequest& request) {
  const json::Value* kwargs = fields.object("chat_template_kwargs");
  if (kwargs == nullptr) return;
  for (const auto& [name, value] : kwargs->items()) {
    const std::string field = fmt::format("chat_template_kwargs.{}", name);
    if (std::find(kTemplateKwargs.begin(), kTemplateKwargs.end(), name) == kTemplateKwargs.end()) {
      return fields.fail("chat_template_kwargs", "It has a name that is not known.");
    }
    if (value.is_structured())
      return fields.fail(field, "A string, number or boolean is expected.");
    request.template_kwargs[name] = value;
  }
}

// Text, whatever it says; a client that gives an object means its text.
std::string read_arguments(const Fields& function) {
  const json::Value* given = function.find("arguments");
  if (given != nullptr && given->is_object()) return given->dump();
  return function.string("arguments").value_or("");
}

json::Value call_entry(const std::string& name, std::string arguments) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

// A call of a function, or of a custom tool, whose text is one argument.
json::Value read_call(const Fields& fields) {
  if (const json::Value* custom = fields.object("custom")) {
    const Fields inner(*custom, fields.path_of("custom"), fields.problem());
    const std::string name = inner.required_string("name", kMaxNameBytes);
    json::Value arguments = json::Value::object();
    arguments[std::string(kCustomInput)] = inner.string("input").value_or("");
    return call_entry(name, arguments.dump());
  }
  const json::Value* function = fields.object("function");
  if (function == nullptr) {
    fields.missing("function");
    return nullptr;
  }
  const Fields inner(*function, fields.path_of("function"), fields.problem());
  const std::string name = inner.required_string("name", kMaxNameBytes);
  return call_entry(name, read_arguments(inner));
}

void read_tool_calls(const Fields& message, json::Value& out) {
  json::Value calls = json::Value::array();
  message.for_each("tool_calls", kMaxParts, [&](const json::Value& call, const std::string& path) {
    const Fields fields(call, path, message.problem());
    json::Value entry = read_call(fields);
    if (const auto id = fields.string("id", kMaxNameBytes)) entry["id"] = *id;
    calls.push_back(std::move(entry));
  });
  if (const json::Value* old = message.object("function_call")) {
    const Fields inner(*old, message.path_of("function_call"), message.problem());
    const std::string name = inner.required_string("name", kMaxNameBytes);
    json::Value entry = call_entry(name, read_arguments(inner));
    entry["id"] = name;
    calls.push_back(std::move(entry));
  }
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
}

json::Value read_message(const json::Value& message, const std::string& path, Problem& problem) {
  const Fields fields(message, path, problem);
  if (!problem && !fields.has("role")) fields.missing("role");
  const auto role =
      fields.choice("role", {"system", "developer", "user", "assistant", "tool", "function"});
  if (problem) return nullptr;
  constexpr std::array<const char*, 6> kRoles = {"system",    "system", "user",
                                                 "assistant", "tool",   "tool"};
  json::Value out = {{"role", kRoles[*role]}};
  if (const json::Value* content = fields.find("content")) {
    out["content"] = read_content(*content, fields.path_of("content"), problem);
  } else if (kRoles[*role] == std::string_view("assistant")) {
    out["content"] = nullptr;
  } else {
    fields.missing("content");
  }
  if (const auto name = fields.string("name", kMaxNameBytes)) out["name"] = *name;
  if (const auto id = fields.string("tool_call_id", kMaxNameBytes)) out["tool_call_id"] = *id;
  if (*role == 5 && out.contains("name")) out["tool_call_id"] = out["name"];
  auto thought = fields.string("reasoning_content");
  if (!thought) thought = fields.string("reasoning");
  if (thought) out["reasoning_content"] = *thought;
  read_tool_calls(fields, out);
  const bool empty = out["content"].is_null() && !out.contains("tool_calls");
  if (empty) fields.missing("content");
  return out;
}

// OpenAI's reasoning_effort, its nested spelling, and the budgets of vLLM, llama.cpp and Anthropic.
void read_reasoning(const Fields& fields, ChatRequest& request) {
  const auto read_effort = [&](const Fields& at, std::string_view name) {
    at.choice(name, {"none", "minimal", "low", "medium", "high", "xhigh"});
    if (const auto effort = at.string(name)) set_reasoning_effort(*effort, request);
  };
  read_effort(fields, "reasoning_effort");
  if (const json::Value* reasoning = fields.object("reasoning")) {
    read_effort(Fields(*reasoning, "reasoning", fields.problem()), "effort");
  }
  request.options.include_reasoning = fields.boolean("include_reasoning").value_or(true);
  const auto format =
      fields.choice("reasoning_format", {"none", "auto", "deepseek", "deepseek-legacy"});
  request.parses_reasoning = format.value_or(1) != 0;
  read_thought_limits(fields, request);
  if (fields.has("thinking")) read_thinking(fields, request);
}

void read_logprobs(const Fields& fields, SamplingParams& sampling) {
  sampling.logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (!top) return;
  if (*top > 0 && !sampling.logprobs) fields.fail("top_logprobs", "It needs logprobs to be true.");
  sampling.top_logprobs = static_cast<uint32_t>(*top);
}

}  // namespace

std::string read_content(const json::Value& content, const std::string& path, Problem& problem) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array() || content.size() > kMaxParts) {
    if (!problem) {
      problem = invalid_field(
          path, fmt::format("A string or a list of at most {} text parts is expected.", kMaxParts));
    }
    return {};
  }
  std::string text;
  for (size_t i = 0; i < content.size() && !problem; ++i) {
    const Fields part(content[i], fmt::format("{}[{}]", path, i), problem);
    const std::string type = part.required_string("type");
    if (problem) break;
    if (type != "text" && type != "refusal") {
      part.fail("type", "Only text parts can be read: no images, sounds, files or URLs.");
      break;
    }
    if (i > 0) text.push_back('\n');
    text.append(part.required_string(type));
  }
  return text;
}

void read_conversation(const Fields& fields, ChatRequest& request) {
  request.messages = json::Value::array();
  if (!fields.has("messages")) return fields.missing("messages");
  fields.for_each("messages", kMaxMessages, [&](const json::Value& m, const std::string& path) {
    request.messages.push_back(read_message(m, path, fields.problem()));
  });
  if (request.messages.empty()) fields.fail("messages", "At least one message is needed.");
  read_tools(fields, request);
  read_template_kwargs(fields, request);
  if (fields.has("chat_template"))
    fields.fail("chat_template", "A request cannot bring a template.");
  const auto add = fields.boolean("add_generation_prompt");
  request.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  request.add_generation_prompt = add.value_or(!request.continue_final_message);
  if (request.continue_final_message && request.add_generation_prompt) {
    fields.fail("continue_final_message", "It excludes add_generation_prompt.");
  }
  if (request.continue_final_message && !fields.problem() &&
      request.messages.back()["role"].get_ref<const std::string&>() != "assistant") {
    fields.fail("continue_final_message", "It needs the last message to be the assistant's.");
  }
}

Parsed<ChatRequest> parse_chat_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  return read_chat_request(*parsed);
}

Parsed<ChatRequest> read_chat_request(const json::Value& body) {
  Problem problem;
  const Fields fields(body, "", problem);
  ChatRequest request;
  AnswerOptions& options = request.options;
  read_answer_options(fields, options);
  const auto old_name = read_max_tokens(fields, "max_tokens");
  options.max_tokens = read_max_tokens(fields, "max_completion_tokens");
  if (!options.max_tokens) options.max_tokens = old_name;
  if (options.max_tokens && options.sampling.min_tokens > *options.max_tokens) {
    fields.fail("min_tokens", "It is more than max_tokens.");
  }
  read_logprobs(fields, options.sampling);
  read_conversation(fields, request);
  read_form(fields, options);
  describe_form(fields, request);
  read_reasoning(fields, request);
  if (problem) return *problem;
  return request;
}

void read_thinking(const Fields& fields, ChatRequest& request) {
  const json::Value* thinking = fields.object("thinking");
  if (thinking == nullptr) return;
  const Fields inner(*thinking, "thinking", fields.problem());
  if (!inner.has("type")) inner.missing("type");
  const auto type = inner.choice("type", {"disabled", "enabled", "adaptive"});
  const auto budget = inner.integer("budget_tokens", 1, INT32_MAX);
  if (!type) return;
  request.template_kwargs["enable_thinking"] = *type > 0;
  if (budget && *type > 0) request.reasoning_budget = static_cast<uint32_t>(*budget);
}

void read_thought_limits(const Fields& fields, ChatRequest& request) {
  auto tokens = fields.integer("reasoning_budget_tokens", -1, INT32_MAX);
  if (!tokens) tokens = fields.integer("thinking_token_budget", 0, INT32_MAX);
  if (tokens && *tokens >= 0) request.reasoning_budget = static_cast<uint32_t>(*tokens);
  const auto thinks = fields.boolean("enable_thinking");
  if (thinks) request.template_kwargs["enable_thinking"] = *thinks;
}

void set_reasoning_effort(std::string_view effort, ChatRequest& request) {
  request.template_kwargs["reasoning_effort"] = std::string(effort);
  if (effort == "none") request.template_kwargs["enable_thinking"] = false;
}

void describe_form(const Fields& fields, ChatRequest& request) {
  if (!fields.boolean("describe_form").value_or(false) || fields.problem()) return;
  if (!request.options.form) return fields.fail("describe_form", "It needs a form.");
  if (request.messages.empty()) return;  // which its reader has refused
  const std::string text = describe(request.options.form->spec);
  json::Value& first = request.messages.front();
  if (first["role"].get_ref<const std::string&>() == "system" && first["content"].is_string()) {
    first["content"].get_ref<std::string&>().append("\n\n").append(text);
  } else {
    json::Value system = {{"role", "system"}, {"content", text}};
    request.messages.insert(request.messages.begin(), std::move(system));
  }
}

Conversation ChatRequest::conversation() const {
  Conversation conversation{chat_context(messages), continue_final_message};
  conversation.context.update(template_kwargs);
  conversation.context["tools"] = tools;
  // How a tool is bound is nothing that a model is told.
  for (json::Value& tool : conversation.context["tools"]) tool["function"].erase("strict");
  conversation.context["add_generation_prompt"] = add_generation_prompt;
  return conversation;
}

}  // namespace skein::api
