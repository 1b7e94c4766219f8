#include "server/api/chat_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/api/form_fields.h"

namespace skein::api {
namespace {

// What a client may tell a template: names that known templates use, and scalars only, so that no
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

// Templates index into arguments, so text that is an object becomes one.
json::Value read_arguments(const Fields& function) {
  const json::Value* given = function.find("arguments");
  if (given == nullptr) return json::Value::object();
  if (given->is_object()) return *given;
  const std::string text = function.string("arguments").value_or("");
  auto parsed = json::parse(text);
  auto* value = std::get_if<json::Value>(&parsed);
  if (value != nullptr && value->is_object()) return std::move(*value);
  return text;
}

void read_tool_calls(const Fields& message, json::Value& out) {
  json::Value calls = json::Value::array();
  message.for_each("tool_calls", kMaxParts, [&](const json::Value& call, const std::string& path) {
    const Fields fields(call, path, message.problem());
    const json::Value* function = fields.object("function");
    if (function == nullptr) return fields.missing("function");
    const Fields inner(*function, fields.path_of("function"), message.problem());
    json::Value entry = {{"type", "function"}};
    if (const auto id = fields.string("id", kMaxNameBytes)) entry["id"] = *id;
    const std::string name = inner.required_string("name", kMaxNameBytes);
    entry["function"] = {{"name", name}, {"arguments", read_arguments(inner)}};
    calls.push_back(std::move(entry));
  });
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
}

json::Value read_message(const json::Value& message, const std::string& path, Problem& problem) {
  const Fields fields(message, path, problem);
  if (!problem && !fields.has("role")) fields.missing("role");
  const auto role = fields.choice("role", {"system", "developer", "user", "assistant", "tool"});
  if (problem) return nullptr;
  constexpr std::array<const char*, 5> kRoles = {"system", "system", "user", "assistant", "tool"};
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
  if (const auto text = fields.string("reasoning_content")) out["reasoning_content"] = *text;
  read_tool_calls(fields, out);
  const bool empty = out["content"].is_null() && !out.contains("tool_calls");
  if (empty) fields.missing("content");
  return out;
}

void read_tools(const Fields& fields, ChatRequest& request) {
  json::Value tools = json::Value::array();
  fields.for_each("tools", kMaxTools, [&](const json::Value& tool, const std::string& path) {
    const Fields inner(tool, path, fields.problem());
    if (!inner.choice("type", {"function"}) && !inner.problem()) return inner.missing("type");
    const json::Value* function = inner.object("function");
    if (function == nullptr) return inner.missing("function");
    const Fields definition(*function, inner.path_of("function"), fields.problem());
    std::string name = definition.required_string("name", kMaxNameBytes);
    definition.string("description");
    tools.push_back(function_tool(std::move(name), definition.find("description"),
                                  definition.object("parameters")));
  });
  if (!tools.empty()) request.tools = std::move(tools);
}

void read_tool_choice(const Fields& fields, ChatRequest& request) {
  request.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  const json::Value* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    const auto word = fields.choice("tool_choice", {"auto", "none", "required"});
    if (word) request.tool_choice = static_cast<ToolChoice>(*word);
  } else if (const json::Value* named = fields.object("tool_choice")) {
    const Fields inner(*named, "tool_choice", fields.problem());
    const json::Value* function = inner.object("function");
    if (function == nullptr) return inner.missing("function");
    request.tool_choice = ToolChoice::kNamed;
    request.tool_name = Fields(*function, "tool_choice.function", fields.problem())
                            .required_string("name", kMaxNameBytes);
  }
  const bool forced = request.tool_choice > ToolChoice::kNone;
  if (forced && request.tools.is_null()) fields.fail("tool_choice", "It needs tools.");
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

json::Value function_tool(std::string name, const json::Value* description,
                          const json::Value* parameters) {
  json::Value function = {{"name", std::move(name)}};
  if (description != nullptr) function["description"] = *description;
  function["parameters"] = parameters != nullptr ? *parameters : json::Value::object();
  return {{"type", "function"}, {"function", std::move(function)}};
}

void read_conversation(const Fields& fields, ChatRequest& request) {
  request.messages = json::Value::array();
  if (!fields.has("messages")) return fields.missing("messages");
  fields.for_each("messages", kMaxMessages, [&](const json::Value& m, const std::string& path) {
    request.messages.push_back(read_message(m, path, fields.problem()));
  });
  if (request.messages.empty()) fields.fail("messages", "At least one message is needed.");
  read_tools(fields, request);
  read_tool_choice(fields, request);
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
  fields.choice("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh"});
  if (const auto effort = fields.string("reasoning_effort")) {
    request.template_kwargs["reasoning_effort"] = *effort;
  }
  if (problem) return *problem;
  return request;
}

void describe_form(const Fields& fields, ChatRequest& request) {
  if (!fields.boolean("describe_form").value_or(false) || fields.problem()) return;
  if (!request.options.form) return fields.fail("describe_form", "It needs a form.");
  const std::string text = describe(request.options.form->spec);
  json::Value& first = request.messages.front();
  if (first["role"].get_ref<const std::string&>() == "system" && first["content"].is_string()) {
    first["content"].get_ref<std::string&>().append("\n\n").append(text);
  } else {
    json::Value system = {{"role", "system"}, {"content", text}};
    request.messages.insert(request.messages.begin(), std::move(system));
  }
}

Problem find_unsupported(const ChatRequest& request) {
  if (!request.tools.is_null() && request.tool_choice != ToolChoice::kNone) {
    return not_supported("Calling tools", "tools");
  }
  return std::nullopt;
}

Conversation ChatRequest::conversation() const {
  Conversation conversation{chat_context(messages), continue_final_message};
  conversation.context.update(template_kwargs);
  conversation.context["tools"] = tools;
  conversation.context["add_generation_prompt"] = add_generation_prompt;
  return conversation;
}

}  // namespace skein::api
