#include "server/api/responses_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dialog/call_body.h"
#include "server/api/form_fields.h"
#include "server/api/tool_fields.h"
#include "server/api/turns.h"

namespace skein::api {
namespace {

constexpr size_t kMaxIncludes = 64;

// A string, or a list of parts that are text, joined with newlines.
std::string read_parts(const Fields& item, std::string_view name) {
  const json::Value* content = item.find(name);
  if (content == nullptr) {
    item.missing(name);
    return {};
  }
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  bool has_text = false;
  item.for_each(name, kMaxParts, [&](const json::Value& part, const std::string& path) {
    const Fields fields(part, path, item.problem());
    const std::string type = fields.required_string("type");
    constexpr std::array<std::string_view, 6> kTexts = {
        "input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal"};
    if (item.problem()) return;
    if (std::find(kTexts.begin(), kTexts.end(), type) == kTexts.end()) {
      return fields.fail("type", "Only text parts can be read: no images, sounds, files or URLs.");
    }
    if (std::exchange(has_text, true)) text.push_back('\n');
    text.append(fields.required_string(type == "refusal" ? "refusal" : "text"));
  });
  return text;
}

// The items of a conversation become messages: a thought, a text and the calls that follow it are
// one turn of the assistant's.
class InputReader {
 public:
  InputReader(json::Value& out, Problem& problem) : turns_(out), problem_(problem) {}

  void read(const json::Value& item, const std::string& path) {
    const Fields fields(item, path, problem_);
    if (problem_) return;
    const bool is_message = !fields.has("type") && fields.has("role");
    const std::string type =
        is_message ? "message" : fields.string("type").value_or("item_reference");
    if (problem_) return;
    if (type == "message") return read_message(fields);
    if (type == "reasoning") return read_thought(fields);
    if (type == "function_call") {
      return add_call(fields, fields.string("arguments").value_or(""));
    }
    if (type == "custom_tool_call") {
      json::Value arguments = json::Value::object();
      arguments[std::string(kCustomInput)] = fields.string("input").value_or("");
      return add_call(fields, arguments.dump());
    }
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      const std::string id = fields.string("call_id", kMaxNameBytes).value_or("");
      return turns_.add_result(id, read_parts(fields, "output"));
    }
    fields.fail("type", fmt::format("Items of the type {} cannot be read here.",
                                    dialog::is_tool_name(type) ? type : "that is given"));
  }
  void add_system(std::string text) { turns_.add_system(std::move(text)); }
  void add_user(std::string_view text) {
    turns_.begin("user");
    turns_.add_text(text);
  }
  void end() { turns_.flush(); }

 private:
  void read_message(const Fields& item) {
    if (!item.has("role")) item.missing("role");
    const auto role = item.choice("role", {"system", "developer", "user", "assistant"});
    std::string text = read_parts(item, "content");
    if (problem_) return;
    if (*role < 2) return turns_.add_system(std::move(text));
    if (*role == 2) return add_user(text);
    begin_answer();
    turns_.add_text(text);
  }

  // Reads the thought, or what is told of it where the thought itself is not there.
  void read_thought(const Fields& item) {
    std::string text;
    if (item.has("content")) text = read_parts(item, "content");
    const std::string sealed = item.string("encrypted_content").value_or("");
    if (text.empty() && sealed.starts_with(kSealedThought)) {
      text = sealed.substr(kSealedThought.size());
    }
    if (text.empty() && item.has("summary")) text = read_parts(item, "summary");
    begin_answer();
    turns_.add_thought(text);
  }

  void add_call(const Fields& item, const std::string& arguments) {
    turns_.begin("assistant");
    turns_.add_call(item.required_string("call_id", kMaxNameBytes),
                    item.required_string("name", kMaxNameBytes), arguments);
  }

  // What comes after calls is the next turn.
  void begin_answer() {
    if (turns_.has_calls()) turns_.flush();
    turns_.begin("assistant");
  }

  Turns turns_;
  Problem& problem_;
};

constexpr const char* kNotKept = "This server keeps no responses: send the whole input.";

// Refuses what is not kept here, and what would go on when the client has left.
void refuse_state(const Fields& fields) {
  for (const char* name : {"conversation", "prompt"}) {
    if (fields.has(name)) fields.fail(name, "It is not kept here: send the whole input.");
  }
  if (fields.boolean("background").value_or(false)) {
    fields.fail("background", "An answer is not made in the background.");
  }
  const auto truncation = fields.choice("truncation", {"disabled", "auto"});
  if (truncation.value_or(0) != 0) {
    fields.fail("truncation", "An input that is too long is not cut; ask for disabled.");
  }
}

// Reads what came before, as the store has it, and says how many items that is.
size_t read_before(const Fields& fields, const std::vector<std::string>& before,
                   InputReader& reader) {
  size_t items = 0;
  for (const std::string& text : before) {
    auto list = read_kept_items(text);
    if (!list.ok()) fields.problem() = list.error();
    if (fields.problem()) break;
    for (const json::Value& item : list.value()) {
      reader.read(item, "previous_response_id");
      ++items;
    }
  }
  return items;
}

void read_input(const Fields& fields, const std::vector<std::string>& before,
                ChatRequest& request) {
  request.messages = json::Value::array();
  InputReader reader(request.messages, fields.problem());
  if (auto text = fields.string("instructions")) reader.add_system(std::move(*text));
  const json::Value* input = fields.find("input");
  if (input == nullptr) return fields.missing("input");
  size_t items = read_before(fields, before, reader);
  if (input->is_string()) {
    reader.add_user(input->get_ref<const std::string&>());
  } else {
    items += input->size();
    fields.for_each("input", kMaxMessages, [&](const json::Value& item, const std::string& path) {
      reader.read(item, path);
    });
    if (input->empty()) fields.fail("input", "At least one item is needed.");
  }
  reader.end();
  if (items > kMaxMessages) {
    fields.fail("input", fmt::format("The conversation has {} items, and {} is the most.", items,
                                     kMaxMessages));
  }
  if (!fields.problem() && request.messages.empty()) {
    fields.fail("input", "At least one item that says something is needed.");
  }
}

// A text stands for one message.
json::Value message_of(const json::Value& text) {
  return {{"type", "message"},
          {"role", "user"},
          {"content", json::Value::array({{{"type", "input_text"}, {"text", text}}})}};
}

// The part of the request that the store gets, where it is to be kept.
std::shared_ptr<const KeptTurn> turn_to_keep(const Fields& fields, const ResponsesTerms& terms) {
  const bool wanted = fields.boolean("store").value_or(terms.keeps_by_default);
  if (fields.problem() || !wanted || !terms.can_keep || terms.counting) return nullptr;
  const json::Value& input = *fields.find("input");
  KeptTurn turn;
  turn.input = input.is_string() ? json::Value::array({message_of(input)}).dump() : input.dump();
  turn.previous = fields.string("previous_response_id").value_or("");
  return std::make_shared<const KeptTurn>(std::move(turn));
}

// Those that run elsewhere are left out, for an agent sends them to every server. The result are
// the ones that were taken, as they came.
json::Value read_response_tools(const Fields& fields, ChatRequest& request) {
  json::Value taken = json::Value::array();
  for_each_tool(fields, "tools", request, [&](const json::Value& tool, const std::string& path) {
    const Fields inner(tool, path, fields.problem());
    const std::string type = inner.required_string("type");
    if (type == "function") {
      add_function(inner, "parameters", request);
    } else if (type == "custom") {
      add_custom_tool(inner, request);
    } else {
      return;
    }
    taken.push_back(tool);
  });
  read_tool_choice(fields, request);
  check_tool_choice(fields, request);
  return taken;
}

void read_effort(const Fields& fields, ChatRequest& request) {
  read_thought_limits(fields, request);
  const json::Value* reasoning = fields.object("reasoning");
  if (reasoning == nullptr) return;
  const Fields inner(*reasoning, "reasoning", fields.problem());
  const auto effort =
      inner.choice("effort", {"none", "minimal", "low", "medium", "high", "xhigh", "max"});
  if (!effort) return;
  set_reasoning_effort(*effort == 6 ? "xhigh" : inner.required_string("effort"), request);
}

void read_text(const Fields& fields, AnswerOptions& options) {
  const json::Value* text = fields.object("text");
  if (text == nullptr) return;
  const Fields inner(*text, "text", fields.problem());
  read_text_format(inner, options);
  inner.choice("verbosity", {"low", "medium", "high"});
}

void read_include(const Fields& fields, AnswerOptions& options) {
  SamplingParams& sampling = options.sampling;
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  sampling.top_logprobs = static_cast<uint32_t>(top.value_or(0));
  sampling.logprobs = sampling.top_logprobs > 0;
  fields.for_each("include", kMaxIncludes, [&](const json::Value& what, const std::string& path) {
    if (!what.is_string()) {
      fields.problem() = invalid_field(path, "A string is expected here.");
    } else if (what.get_ref<const std::string&>() == "message.output_text.logprobs") {
      sampling.logprobs = true;
    } else if (what.get_ref<const std::string&>() == "reasoning.encrypted_content") {
      options.seal_reasoning = true;
    }
  });
}

// The members of the answer that repeat its request.
class Echo {
 public:
  explicit Echo(const Fields& fields) : fields_(fields) {}

  // As it was sent, or else that JSON.
  void add(std::string_view name, std::string_view otherwise = "null") {
    const json::Value* value = fields_.find(name);
    add_json(name, value != nullptr ? value->dump() : std::string(otherwise));
  }
  void add_json(std::string_view name, std::string_view json) {
    if (!members_.empty()) members_.push_back(',');
    members_.append("\"").append(name).append("\":").append(json);
  }
  std::shared_ptr<const std::string> take() {
    return std::make_shared<const std::string>(std::move(members_));
  }

 private:
  const Fields& fields_;
  std::string members_;
};

std::shared_ptr<const std::string> echo_of(const Fields& fields, const json::Value& tools) {
  Echo echo(fields);
  echo.add("instructions");
  echo.add("max_output_tokens");
  echo.add("max_tool_calls");
  echo.add("metadata", "{}");
  echo.add("parallel_tool_calls", "true");
  echo.add("previous_response_id");
  echo.add("prompt_cache_key");
  echo.add("reasoning", R"({"effort":null,"summary":null})");
  echo.add("safety_identifier");
  echo.add_json("service_tier", R"("default")");
  json::Value text = {{"format", {{"type", "text"}}}};
  if (const json::Value* given = fields.object("text")) {
    for (const char* name : {"format", "verbosity"}) {
      if (const auto member = given->find(name); member != given->end()) text[name] = *member;
    }
  }
  echo.add_json("text", text.dump());
  echo.add("tool_choice", R"("auto")");
  echo.add_json("tools", tools.dump());
  echo.add("top_logprobs", "0");
  echo.add_json("truncation", R"("disabled")");
  echo.add("user");
  return echo.take();
}

}  // namespace

Parsed<ChatRequest> parse_responses_request(std::string_view body, const ResponsesTerms& terms) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  return read_responses_request(*parsed, terms);
}

Parsed<ChatRequest> read_responses_request(const json::Value& body, const ResponsesTerms& terms) {
  Problem problem;
  const Fields fields(body, "", problem);
  ChatRequest request;
  AnswerOptions& options = request.options;
  refuse_state(fields);
  if (auto previous = read_previous_response(body, terms.can_keep); !previous.ok()) {
    return previous.error();
  }
  read_answer_options(fields, options);
  options.n = 1;  // not a field of this dialect
  options.max_tokens = read_max_tokens(fields, "max_output_tokens");
  read_input(fields, terms.before, request);
  const json::Value tools = read_response_tools(fields, request);
  read_effort(fields, request);
  read_text(fields, options);
  read_form(fields, options);
  describe_form(fields, request);
  read_include(fields, options);
  options.kept = turn_to_keep(fields, terms);
  read_metadata(fields);
  for (const char* name : {"prompt_cache_key", "safety_identifier"}) {
    fields.string(name, kMaxNameBytes);
  }
  fields.integer("max_tool_calls", 0, INT32_MAX);
  if (!problem && !terms.counting) options.echo = echo_of(fields, tools);
  if (problem) return *problem;
  return request;
}

Parsed<std::string> read_previous_response(const json::Value& body, bool can_keep) {
  Problem problem;
  const Fields fields(body, "", problem);
  std::string id = fields.string("previous_response_id", kMaxNameBytes).value_or("");
  if (fields.has("previous_response_id") && !can_keep)
    fields.fail("previous_response_id", kNotKept);
  if (fields.has("previous_response_id") && id.empty()) {
    fields.fail("previous_response_id", "The id of a response is expected here.");
  }
  if (problem) return *problem;
  return id;
}

}  // namespace skein::api
