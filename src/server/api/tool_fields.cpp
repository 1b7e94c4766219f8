#include "server/api/tool_fields.h"

#include <algorithm>
#include <utility>

#include "dialog/call_body.h"
#include "server/api/form_fields.h"

namespace skein::api {
namespace {

std::string json_text(const json::Value& value) {
  return value.dump(-1, ' ', false, json::Value::error_handler_t::replace);
}

void refuse_tool(const Fields& at, std::string_view name, std::string message) {
  if (!at.problem()) at.problem() = invalid_tool(at.path_of(name), std::move(message));
}

bool has_tool(const ChatRequest& request, std::string_view name) {
  return std::any_of(request.tools.begin(), request.tools.end(), [&](const json::Value& tool) {
    return tool["function"]["name"].get_ref<const std::string&>() == name;
  });
}

std::string read_name(const Fields& definition, const ChatRequest& request) {
  std::string name = definition.required_string("name");
  if (definition.problem()) return {};
  if (!dialog::is_tool_name(name)) {
    refuse_tool(definition, "name",
                "A name has 1 to 128 letters, digits, underscores, points, colons and hyphens.");
  } else if (has_tool(request, name)) {
    refuse_tool(definition, "name", fmt::format("Two tools are called {}.", name));
  }
  return name;
}

void add_tool(const Fields& definition, json::Value function, ChatRequest& request) {
  if (definition.problem()) return;
  json::Value tool = {{"type", "function"}, {"function", std::move(function)}};
  request.tool_bytes += json_text(tool).size();
  if (request.tools.is_null()) request.tools = json::Value::array();
  request.tools.push_back(std::move(tool));
}

// The texts that a custom tool takes, as the schema of the argument that they are, and as a grammar
// where no schema can say it.
json::Value input_schema(const Fields& definition, ChatRequest::TextGrammar& out) {
  json::Value schema = {{"type", "string"}};
  const json::Value* format = definition.object("format");
  if (format == nullptr) return schema;
  const Fields inner(*format, definition.path_of("format"), definition.problem());
  if (!inner.has("type")) inner.missing("type");
  const auto type = inner.choice("type", {"text", "grammar"});
  if (!type || *type == 0) return schema;
  // Nested in Chat Completions, flat in Responses.
  const json::Value* nested = inner.object("grammar");
  const Fields grammar(nested != nullptr ? *nested : *format,
                       nested != nullptr ? inner.path_of("grammar") : definition.path_of("format"),
                       definition.problem());
  if (!grammar.has("syntax")) grammar.missing("syntax");
  const auto syntax = grammar.choice("syntax", {"regex", "lark"});
  const std::string text = grammar.required_string("definition");
  if (!syntax) return schema;
  out.field = grammar.path_of("definition");
  if (*syntax == 0) {
    schema["description"] = "A text that matches this regular expression:\n" + text;
    out.regex = text;
  } else {
    schema["description"] = "A text of this Lark grammar:\n" + text;
    out.lark = text;
  }
  return schema;
}

// Old: {"name"} or a word.
void read_function_call(const Fields& fields, ChatRequest& request) {
  const json::Value* choice = fields.find("function_call");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    const auto word = fields.choice("function_call", {"auto", "none"});
    if (word) request.tool_choice = static_cast<ToolChoice>(*word);
  } else if (const json::Value* named = fields.object("function_call")) {
    const Fields inner(*named, "function_call", fields.problem());
    request.tool_choice = ToolChoice::kNamed;
    request.tool_names = {inner.required_string("name", kMaxNameBytes)};
  }
}

// {"type": "function", "function": {"name"}}, custom likewise, or {"type", "name"}.
std::string read_reference(const Fields& reference) {
  if (reference.problem()) return {};
  if (!reference.has("type")) reference.missing("type");
  const auto type = reference.choice("type", {"function", "custom"});
  if (!type) return {};
  const std::string_view kind = *type == 0 ? "function" : "custom";
  const json::Value* nested = reference.object(kind);
  if (nested == nullptr && !reference.has("name")) {
    reference.missing(kind);
    return {};
  }
  if (nested == nullptr) return reference.required_string("name", kMaxNameBytes);
  return Fields(*nested, reference.path_of(kind), reference.problem())
      .required_string("name", kMaxNameBytes);
}

void read_allowed_tools(const Fields& choice, ChatRequest& request) {
  const json::Value* nested = choice.object("allowed_tools");
  const auto read = [&](const Fields& allowed) {
    const auto mode = allowed.choice("mode", {"auto", "required"});
    request.tool_choice = mode.value_or(0) == 1 ? ToolChoice::kRequired : ToolChoice::kAuto;
    allowed.for_each("tools", kMaxTools, [&](const json::Value& tool, const std::string& path) {
      request.tool_names.push_back(read_reference(Fields(tool, path, choice.problem())));
    });
    if (request.tool_names.empty()) allowed.fail("tools", "At least one tool is needed.");
  };
  if (nested == nullptr) return read(choice);
  read(Fields(*nested, choice.path_of("allowed_tools"), choice.problem()));
}

}  // namespace

void for_each_tool(const Fields& fields, std::string_view name, ChatRequest& request,
                   const std::function<void(const json::Value&, const std::string&)>& take) {
  const json::Value* list = fields.array(name, SIZE_MAX);
  if (list == nullptr) return;
  if (list->size() > kMaxTools) {
    fields.problem() = form_too_complex(
        fields.path_of(name),
        fmt::format("There are {} tools; at most {} are taken.", list->size(), kMaxTools));
  }
  for (size_t i = 0; i < list->size() && !fields.problem(); ++i) {
    take((*list)[i], fmt::format("{}[{}]", fields.path_of(name), i));
    if (request.tools.size() > request.tool_places.size()) request.tool_places.push_back(i);
    if (fields.problem() || request.tool_bytes <= kMaxToolBytes) continue;
    fields.problem() = form_too_complex(
        fields.path_of(name), fmt::format("The first {} tools have {} bytes; at most {} are taken.",
                                          i + 1, request.tool_bytes, kMaxToolBytes));
  }
}

void add_function(const Fields& definition, std::string_view schema_field, ChatRequest& request) {
  const std::string name = read_name(definition, request);
  json::Value function = {{"name", name}};
  if (const auto text = definition.string("description")) function["description"] = *text;
  const json::Value* schema = definition.object(schema_field);
  function["parameters"] = schema != nullptr ? *schema : json::Value::object();
  if (const auto strict = definition.boolean("strict")) function["strict"] = *strict;
  add_tool(definition, std::move(function), request);
}

void add_custom_tool(const Fields& definition, ChatRequest& request) {
  const std::string name = read_name(definition, request);
  json::Value function = {{"name", name}};
  if (const auto text = definition.string("description")) function["description"] = *text;
  const std::string input(kCustomInput);
  json::Value properties = json::Value::object();
  ChatRequest::TextGrammar grammar;
  properties[input] = input_schema(definition, grammar);
  function["parameters"] = {{"type", "object"},
                            {"properties", std::move(properties)},
                            {"required", json::Value::array({input})},
                            {"additionalProperties", false}};
  add_tool(definition, std::move(function), request);
  request.custom_tools.push_back(name);
  request.custom_grammars.push_back(std::move(grammar));
}

void read_tool_choice(const Fields& fields, ChatRequest& request) {
  request.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  const json::Value* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    const auto word = fields.choice("tool_choice", {"auto", "none", "required"});
    if (word) request.tool_choice = static_cast<ToolChoice>(*word);
    return;
  }
  const json::Value* named = fields.object("tool_choice");
  if (named == nullptr) return;
  const Fields inner(*named, "tool_choice", fields.problem());
  if (inner.string("type").value_or("") == "allowed_tools") {
    return read_allowed_tools(inner, request);
  }
  request.tool_choice = ToolChoice::kNamed;
  request.tool_names = {read_reference(inner)};
}

void check_tool_choice(const Fields& fields, const ChatRequest& request) {
  if (fields.problem()) return;
  const bool forced = request.tool_choice > ToolChoice::kNone;
  if (forced && request.tools.is_null()) return fields.fail("tool_choice", "It needs tools.");
  for (const std::string& name : request.tool_names) {
    if (has_tool(request, name)) continue;
    fields.problem() =
        tool_not_found(request.options.as_function_call ? "function_call" : "tool_choice", name);
    return;
  }
}

void read_tools(const Fields& fields, ChatRequest& request) {
  if (!fields.has("tools") && fields.has("functions")) {
    request.options.as_function_call = true;
    request.parallel_tool_calls = false;
    for_each_tool(fields, "functions", request,
                  [&](const json::Value& tool, const std::string& path) {
                    add_function(Fields(tool, path, fields.problem()), "parameters", request);
                  });
    read_function_call(fields, request);
    return check_tool_choice(fields, request);
  }
  for_each_tool(fields, "tools", request, [&](const json::Value& tool, const std::string& path) {
    const Fields inner(tool, path, fields.problem());
    if (!inner.problem() && !inner.has("type")) inner.missing("type");
    const auto type = inner.choice("type", {"function", "custom"});
    if (!type) return;
    const std::string_view kind = *type == 0 ? "function" : "custom";
    const json::Value* definition = inner.object(kind);
    if (definition == nullptr) return inner.missing(kind);
    const Fields of_kind(*definition, inner.path_of(kind), fields.problem());
    if (*type == 0) return add_function(of_kind, "parameters", request);
    add_custom_tool(of_kind, request);
  });
  read_tool_choice(fields, request);
  check_tool_choice(fields, request);
}

}  // namespace skein::api
