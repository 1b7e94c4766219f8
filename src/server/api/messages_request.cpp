// Anthropic's Messages in the words of ChatRequest.
#include <array>
#include <utility>

#include "dialog/call_body.h"
#include "server/api/chat_request.h"
#include "server/api/form_fields.h"
#include "server/api/tool_fields.h"
#include "server/api/turns.h"

namespace skein::api {
namespace {

// Claude Code puts this line before its system prompt. It says who pays, differs from request to
// request and would keep every prompt from being found in the prefix cache.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

// The text of a system's message; nullopt: there is nothing in it for the model.
std::optional<std::string> read_system(const json::Value& content, const std::string& path,
                                       Problem& problem) {
  std::string text = read_content(content, path, problem);
  if (problem || content.is_string()) return text;
  text.clear();
  bool has_text = false;
  for (const json::Value& block : content) {
    const auto& part = block[block["type"].get_ref<const std::string&>()];
    const auto& of_block = part.get_ref<const std::string&>();
    if (of_block.starts_with(kBillingHeader)) continue;
    if (std::exchange(has_text, true)) text.push_back('\n');
    text.append(of_block);
  }
  if (!has_text) return std::nullopt;
  return text;
}

// Templates know no results that are errors, so the text says it.
std::string error_result(std::string text) {
  if (text.starts_with("Error") || text.starts_with("error")) return text;
  return text.empty() ? "Error" : "Error: " + text;
}

// One message of the client may be several here: each tool result is one of its own.
class MessageReader {
 public:
  MessageReader(json::Value& out, Problem& problem) : turns_(out), problem_(problem) {}

  void read(const json::Value& message, const std::string& path) {
    const Fields fields(message, path, problem_);
    if (!problem_ && !fields.has("role")) fields.missing("role");
    const auto role = fields.choice("role", {"user", "assistant", "system"});
    const json::Value* content = fields.find("content");
    if (content == nullptr) fields.missing("content");
    if (problem_) return;
    // It stays where it is: moved to the front it would change the prompt from there on.
    if (*role == 2) return add_system(*content, fields.path_of("content"));
    is_user_ = *role == 0;
    turns_.begin(is_user_ ? "user" : "assistant");
    if (content->is_string()) {
      turns_.add_text(content->get_ref<const std::string&>());
    } else {
      fields.for_each("content", kMaxParts, [this](const json::Value& block, const std::string& p) {
        read_block(Fields(block, p, problem_));
      });
    }
    turns_.flush();
  }

  void add_system(const json::Value& content, const std::string& path) {
    if (auto text = read_system(content, path, problem_)) turns_.add_system(std::move(*text));
  }

 private:
  void read_block(const Fields& block) {
    if (problem_) return;
    const std::string type = block.required_string("type");
    if (problem_) return;
    if (type == "text") {
      turns_.add_text(block.required_string("text"));
    } else if (type == "thinking" && !is_user_) {
      turns_.add_thought(block.required_string("thinking"));
    } else if (type == "redacted_thinking" && !is_user_) {
      // Nothing that a template could print.
    } else if (type == "tool_use" && !is_user_) {
      const json::Value* input = block.object("input");
      turns_.add_call(block.required_string("id", kMaxNameBytes),
                      block.required_string("name", kMaxNameBytes),
                      input != nullptr ? input->dump() : "{}");
    } else if (type == "tool_result" && is_user_) {
      add_result(block);
    } else {
      block.fail("type", "Only text, thinking, tool_use and tool_result blocks can be read here.");
    }
  }

  void add_result(const Fields& block) {
    const json::Value* content = block.find("content");
    const std::string id = block.required_string("tool_use_id", kMaxNameBytes);
    std::string text;
    if (content != nullptr) text = read_content(*content, block.path_of("content"), problem_);
    if (block.boolean("is_error").value_or(false)) text = error_result(std::move(text));
    turns_.add_result(id, std::move(text));
  }

  Turns turns_;
  Problem& problem_;
  bool is_user_ = false;
};

// web_search_20250305, bash_20250124 and the like, which are no tools of the client's.
std::string server_tool_text(const std::string& type) {
  return fmt::format("{} is not a tool that can be used here: only those with an input_schema are.",
                     dialog::is_tool_name(type) ? type : "This");
}

void read_message_tools(const Fields& fields, ChatRequest& request) {
  for_each_tool(fields, "tools", request, [&](const json::Value& tool, const std::string& path) {
    const Fields inner(tool, path, fields.problem());
    const std::string type = inner.string("type").value_or("custom");
    if (type != "custom" && !fields.problem()) {
      fields.problem() = invalid_tool(inner.path_of("type"), server_tool_text(type));
    }
    add_function(inner, "input_schema", request);
  });
  const json::Value* choice = fields.object("tool_choice");
  if (choice == nullptr) return;
  const Fields inner(*choice, "tool_choice", fields.problem());
  if (!inner.has("type")) inner.missing("type");
  const auto type = inner.choice("type", {"auto", "none", "any", "tool"});
  if (!type) return;
  request.tool_choice = static_cast<ToolChoice>(*type);
  if (request.tool_choice == ToolChoice::kNamed) {
    request.tool_names = {inner.required_string("name", kMaxNameBytes)};
  }
  request.parallel_tool_calls = !inner.boolean("disable_parallel_tool_use").value_or(false);
  check_tool_choice(fields, request);
}

// How long the model thinks, and whether the client wants to see it.
void read_thoughts(const Fields& fields, ChatRequest& request) {
  read_thinking(fields, request);
  if (const json::Value* thinking = fields.object("thinking")) {
    const Fields inner(*thinking, "thinking", fields.problem());
    const auto display = inner.choice("display", {"summarized", "omitted"});
    request.options.include_reasoning = display.value_or(0) == 0;
  }
  if (const json::Value* config = fields.object("output_config")) {
    const Fields inner(*config, "output_config", fields.problem());
    const auto effort = inner.choice("effort", {"low", "medium", "high", "xhigh", "max"});
    if (!effort) return;
    constexpr std::array<std::string_view, 5> kEfforts = {"low", "medium", "high", "xhigh",
                                                          "xhigh"};
    set_reasoning_effort(kEfforts[*effort], request);
  }
}

}  // namespace

Parsed<ChatRequest> parse_messages_request(std::string_view body, bool counting) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  Problem problem;
  const Fields fields(*parsed, "", problem);
  ChatRequest request;
  request.call_ids = dialog::IdStyle::kAnthropic;
  AnswerOptions& options = request.options;
  read_answer_options(fields, options);
  options.n = 1;  // not a field of this dialect
  options.stop = read_stops(fields, "stop_sequences");
  options.max_tokens = read_max_tokens(fields, "max_tokens");
  if (!counting && !options.max_tokens) fields.missing("max_tokens");
  request.messages = json::Value::array();
  MessageReader reader(request.messages, problem);
  if (const json::Value* system = fields.find("system")) reader.add_system(*system, "system");
  const size_t before = request.messages.size();
  if (!fields.has("messages")) fields.missing("messages");
  fields.for_each(
      "messages", kMaxMessages,
      [&](const json::Value& message, const std::string& path) { reader.read(message, path); });
  if (!problem && request.messages.size() == before) {
    fields.fail("messages", "At least one message is needed.");
  }
  read_message_tools(fields, request);
  read_thoughts(fields, request);
  read_output_format(fields, options);
  read_form(fields, options);
  describe_form(fields, request);
  fields.object("metadata");
  if (problem) return *problem;
  // A last turn of the assistant's is the beginning of the answer, but for one that calls.
  const json::Value& last = request.messages.back();
  request.continue_final_message =
      last["role"].get_ref<const std::string&>() == "assistant" && !last.contains("tool_calls");
  request.add_generation_prompt = !request.continue_final_message;
  return request;
}

}  // namespace skein::api
