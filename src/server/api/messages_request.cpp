// Anthropic's Messages in the words of ChatRequest.
#include <array>
#include <utility>

#include "server/api/chat_request.h"
#include "server/api/form_fields.h"

namespace skein::api {
namespace {

// One message of the client may be several here: each tool result is one of its own.
class MessageReader {
 public:
  MessageReader(json::Value& out, Problem& problem) : out_(out), problem_(problem) {}

  void read(const json::Value& message, const std::string& path) {
    const Fields fields(message, path, problem_);
    if (!problem_ && !fields.has("role")) fields.missing("role");
    const auto role = fields.choice("role", {"user", "assistant"});
    const json::Value* content = fields.find("content");
    if (content == nullptr) fields.missing("content");
    if (problem_) return;
    role_ = *role == 0 ? "user" : "assistant";
    if (content->is_string()) {
      text_ = content->get<std::string>();
      has_text_ = true;
    } else {
      fields.for_each("content", kMaxParts, [this](const json::Value& block, const std::string& p) {
        read_block(Fields(block, p, problem_));
      });
    }
    flush();
  }

 private:
  void read_block(const Fields& block) {
    if (problem_) return;
    const std::string type = block.required_string("type");
    if (problem_) return;
    if (type == "text") {
      if (has_text_) text_.push_back('\n');
      text_.append(block.required_string("text"));
      has_text_ = true;
    } else if (type == "thinking" && role_ == "assistant") {
      reasoning_.append(block.required_string("thinking"));
    } else if (type == "redacted_thinking" && role_ == "assistant") {
      // Nothing that a template could print.
    } else if (type == "tool_use" && role_ == "assistant") {
      const json::Value* input = block.object("input");
      const std::string name = block.required_string("name", kMaxNameBytes);
      calls_.push_back(
          {{"type", "function"},
           {"id", block.required_string("id", kMaxNameBytes)},
           {"function",
            {{"name", name}, {"arguments", input != nullptr ? *input : json::Value::object()}}}});
    } else if (type == "tool_result" && role_ == "user") {
      flush();
      const json::Value* content = block.find("content");
      const std::string id = block.required_string("tool_use_id", kMaxNameBytes);
      std::string text;
      if (content != nullptr) text = read_content(*content, block.path_of("content"), problem_);
      out_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(text)}});
    } else {
      block.fail("type", "Only text, thinking, tool_use and tool_result blocks can be read here.");
    }
  }

  // Consecutive turns of one role are one turn.
  void flush() {
    if (!has_text_ && reasoning_.empty() && calls_.empty()) return;
    json::Value message = {{"role", role_}, {"content", nullptr}};
    if (has_text_) message["content"] = std::move(text_);
    if (!reasoning_.empty()) message["reasoning_content"] = std::move(reasoning_);
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    if (!out_.empty() && joins(out_.back(), message)) {
      out_.back()["content"] =
          out_.back()["content"].get<std::string>() + "\n" + message["content"].get<std::string>();
    } else {
      out_.push_back(std::move(message));
    }
    has_text_ = false;
    text_.clear();
    reasoning_.clear();
    calls_ = json::Value::array();
  }

  static bool joins(const json::Value& before, const json::Value& next) {
    const auto plain = [](const json::Value& m) {
      return m.size() == 2 && m["content"].is_string();
    };
    return before["role"] == next["role"] && plain(before) && plain(next);
  }

  json::Value& out_;
  Problem& problem_;
  std::string role_;
  std::string text_;
  bool has_text_ = false;
  std::string reasoning_;
  json::Value calls_ = json::Value::array();
};

void read_message_tools(const Fields& fields, ChatRequest& request) {
  json::Value tools = json::Value::array();
  fields.for_each("tools", kMaxTools, [&](const json::Value& tool, const std::string& path) {
    const Fields inner(tool, path, fields.problem());
    std::string name = inner.required_string("name", kMaxNameBytes);
    inner.string("description");
    tools.push_back(
        function_tool(std::move(name), inner.find("description"), inner.object("input_schema")));
  });
  if (!tools.empty()) request.tools = std::move(tools);
  const json::Value* choice = fields.object("tool_choice");
  if (choice == nullptr) return;
  const Fields inner(*choice, "tool_choice", fields.problem());
  if (!inner.has("type")) inner.missing("type");
  const auto type = inner.choice("type", {"auto", "none", "any", "tool"});
  if (!type) return;
  request.tool_choice = static_cast<ToolChoice>(*type);
  if (request.tool_choice == ToolChoice::kNamed) {
    request.tool_name = inner.required_string("name", kMaxNameBytes);
  }
  request.parallel_tool_calls = !inner.boolean("disable_parallel_tool_use").value_or(false);
  const bool forced = request.tool_choice > ToolChoice::kNone;
  if (forced && request.tools.is_null()) fields.fail("tool_choice", "It needs tools.");
}

void read_thinking(const Fields& fields, ChatRequest& request) {
  const json::Value* thinking = fields.object("thinking");
  if (thinking == nullptr) return;
  const Fields inner(*thinking, "thinking", fields.problem());
  if (!inner.has("type")) inner.missing("type");
  const auto type = inner.choice("type", {"disabled", "enabled", "adaptive"});
  inner.integer("budget_tokens", 1, INT32_MAX);
  if (type) request.template_kwargs["enable_thinking"] = *type > 0;
}

}  // namespace

Parsed<ChatRequest> parse_messages_request(std::string_view body, bool counting) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  Problem problem;
  const Fields fields(*parsed, "", problem);
  ChatRequest request;
  AnswerOptions& options = request.options;
  read_answer_options(fields, options);
  options.n = 1;  // not a field of this dialect
  options.stop = read_stops(fields, "stop_sequences");
  options.max_tokens = read_max_tokens(fields, "max_tokens");
  if (!counting && !options.max_tokens) fields.missing("max_tokens");
  request.messages = json::Value::array();
  if (const json::Value* system = fields.find("system")) {
    std::string text = read_content(*system, "system", problem);
    request.messages.push_back({{"role", "system"}, {"content", std::move(text)}});
  }
  const size_t before = request.messages.size();
  if (!fields.has("messages")) fields.missing("messages");
  MessageReader reader(request.messages, problem);
  fields.for_each(
      "messages", kMaxMessages,
      [&](const json::Value& message, const std::string& path) { reader.read(message, path); });
  if (!problem && request.messages.size() == before) {
    fields.fail("messages", "At least one message is needed.");
  }
  read_message_tools(fields, request);
  read_thinking(fields, request);
  read_output_format(fields, options);
  describe_form(fields, request);
  fields.object("metadata");
  if (problem) return *problem;
  // A last turn of the assistant's is the beginning of the answer.
  const auto& last_role = request.messages.back()["role"].get_ref<const std::string&>();
  request.continue_final_message = last_role == "assistant";
  request.add_generation_prompt = !request.continue_final_message;
  return request;
}

}  // namespace skein::api
