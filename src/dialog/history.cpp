#include "dialog/history.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "base/rng.h"
#include "dialog/call_body.h"
#include "dialog/call_writer.h"
#include "text/json_text.h"
#include "text/unused_word.h"

namespace skein::dialog {
namespace {

constexpr std::string_view kIdLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

std::string letters(uint64_t seed, uint64_t stream, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(kIdLetters[random_at(seed, stream, i) % kIdLetters.size()]);
  }
  return out;
}

std::string text_member(const OrderedJson& object, const char* name) {
  if (!object.is_object()) return {};
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// An id that a template with short ids takes; equal ids stay equal.
std::string nine_characters(const std::string& id) {
  const bool good = id.size() == 9 && std::all_of(id.begin(), id.end(), [](char c) {
                      return kIdLetters.find(c) != std::string_view::npos;
                    });
  if (good) return id;
  uint64_t hash = 0;
  for (const char c : id) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return letters(hash, 9, 9);
}

constexpr std::string_view kResultEnd = "</tool_response>";

// Where the end of a result is letters and no token, a result that has the same letters in it would
// end there: `</x>` in it becomes `<\/x>`.
void keep_open(OrderedJson& content, std::string_view end) {
  if (end.empty()) return;
  if (content.is_array()) {
    for (OrderedJson& part : content) {
      if (part.is_object() && part.contains("text")) keep_open(part["text"], end);
    }
  }
  if (!content.is_string()) return;
  auto& text = content.get_ref<std::string&>();
  std::string out;
  size_t from = 0;
  for (size_t at = text.find(end); at != std::string::npos; at = text.find(end, from)) {
    out.append(text, from, at + 1 - from).push_back('\\');
    from = at + 1;
  }
  if (from > 0) text = out.append(text, from);
}

class HistoryWriter {
 public:
  HistoryWriter(const ChatFormat& format, OrderedJson messages, OrderedJson tools)
      : format_(format), habits_(format.habits), tools_(std::move(tools)) {
    choose_word(messages, tools_);
    begins_with_system_ = !messages.empty() && text_member(messages[0], "role") == "system";
    for (OrderedJson& message : messages) add(std::move(message));
    if (!habits_.shows_tools) tell_tools();
  }

  History take() {
    history_.tools = std::move(tools_);
    return std::move(history_);
  }

 private:
  OrderedJson& out() { return history_.messages; }

  // A word that stands in no message and no tool.
  void choose_word(const OrderedJson& messages, const OrderedJson& tools) {
    constexpr auto kReplace = OrderedJson::error_handler_t::replace;
    history_.word = unused_word("skeincalls", messages.dump(-1, ' ', false, kReplace) +
                                                  tools.dump(-1, ' ', false, kReplace));
  }

  void add(OrderedJson message) {
    if (!message.is_object()) {
      out().push_back(std::move(message));
      return;
    }
    const std::string role = text_member(message, "role");
    // A template without a place for a system message has it in the first turn of the user's.
    if (role == "system" && !habits_.takes_system && out().empty()) {
      return add_to_user(text_member(message, "content"));
    }
    if (role == "user" && !habits_.takes_system && out().size() == 1 && begins_with_system_ &&
        message["content"].is_string()) {
      return add_to_user("\n" + text_member(message, "content"));
    }
    if (role == "assistant") return add_answer(std::move(message));
    if (role == "tool") return add_result(std::move(message));
    if (role == "system" && !habits_.takes_later_system && !out().empty()) {
      return add_to_user("<system>" + text_member(message, "content") + "</system>");
    }
    // A text that was made of a result and a user's next word are one turn.
    if (role == "user" && joins_ && message["content"].is_string()) {
      return add_to_user(text_member(message, "content"));
    }
    joins_ = false;
    out().push_back(std::move(message));
  }

  void add_answer(OrderedJson message) {
    joins_ = false;
    const auto content = message.find("content");
    if (content == message.end() || content->is_null()) message["content"] = "";
    move_thought(message);
    const auto calls = message.find("tool_calls");
    if (calls != message.end() && calls->is_array() && !calls->empty()) {
      const bool says_something = !message["content"].empty() && !says(message["content"], "");
      if ((habits_.null_content && says_something) || !convert_calls(*calls)) {
        write_calls_as_text(message);
      } else if (habits_.null_content) {
        message["content"] = nullptr;
      }
    }
    out().push_back(std::move(message));
  }

  void move_thought(OrderedJson& message) const {
    std::string thought;
    for (const char* field : {"reasoning_content", "reasoning", "thinking"}) {
      if (thought.empty()) thought = text_member(message, field);
    }
    if (!thought.empty() && !format_.reasoning.field.empty()) {
      message[format_.reasoning.field] = thought;
    }
  }

  // Arguments and ids as the template wants them; false where it cannot write these calls.
  bool convert_calls(OrderedJson& calls) const {
    if (!habits_.writes_calls || (calls.size() > 1 && !format_.calls.parallel)) return false;
    OrderedJson converted = calls;
    for (OrderedJson& call : converted) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
        return false;
      }
      OrderedJson& arguments = call["function"]["arguments"];
      if (arguments.is_string() || arguments.is_null()) {
        const OrderedJson object = parse_arguments(text_member(call["function"], "arguments"));
        if (object.is_discarded()) return false;
        arguments = object;
      }
      if (habits_.arguments_as_text) arguments = spaced_json(arguments, false);
      if (habits_.nine_character_ids) call["id"] = nine_characters(text_member(call, "id"));
    }
    calls = std::move(converted);
    return true;
  }

  void write_calls_as_text(OrderedJson& message) {
    std::vector<ToolCall> calls;
    for (const OrderedJson& call : message["tool_calls"]) {
      const OrderedJson function =
          call.is_object() ? call.value("function", OrderedJson()) : OrderedJson();
      ToolCall written = {text_member(call, "id"), text_member(function, "name"),
                          text_member(function, "arguments")};
      if (function.is_object() && function.contains("arguments") &&
          function["arguments"].is_object()) {
        written.arguments = spaced_json(function["arguments"], false);
      }
      calls.push_back(std::move(written));
    }
    message.erase("tool_calls");
    const std::string place = history_.word + "n" + std::to_string(history_.written.size()) + "x";
    std::string content = text_member(message, "content");
    if (!content.empty()) content += format_.calls.lead;
    message["content"] = content + place;
    history_.written.push_back(write_call_pieces(format_.calls, calls));
  }

  void add_result(OrderedJson message) {
    keep_open(message["content"], habits_.writes_results ? habits_.result_end : kResultEnd);
    if (habits_.writes_results) {
      const std::string id = text_member(message, "tool_call_id");
      if (habits_.nine_character_ids) message["tool_call_id"] = nine_characters(id);
      joins_ = false;
      out().push_back(std::move(message));
      return;
    }
    add_to_user("<tool_response>\n" + text_member(message, "content") + "\n" +
                std::string(kResultEnd));
    joins_ = true;
  }

  // As a part of the user's turn that stands last, or as one of its own.
  void add_to_user(const std::string& text) {
    if (!out().empty() && text_member(out().back(), "role") == "user" &&
        out().back()["content"].is_string()) {
      out().back()["content"].get_ref<std::string&>().append("\n").append(text);
      return;
    }
    out().push_back({{"role", "user"}, {"content", text}});
  }

  // The template shows no tools, so a text does.
  void tell_tools() {
    if (!tools_.is_array() || tools_.empty()) return;
    std::string text = "You can call these functions, one JSON object a line:\n";
    for (const OrderedJson& tool : tools_) text += spaced_json(tool, false) + "\n";
    const ToolCall example = {"", "NAME", ""};
    text += "To call one, write:\n" + write_calls(format_.calls, std::span(&example, 1));
    tools_ = nullptr;
    if (!out().empty() && out()[0].is_object() && out()[0]["content"].is_string() &&
        (text_member(out()[0], "role") == "system" || !habits_.takes_system)) {
      out()[0]["content"] = text + "\n\n" + text_member(out()[0], "content");
      return;
    }
    const char* role = habits_.takes_system ? "system" : "user";
    out().insert(out().begin(), OrderedJson{{"role", role}, {"content", text}});
  }

  const ChatFormat& format_;
  const TemplateHabits& habits_;
  OrderedJson tools_;
  History history_{OrderedJson::array(), nullptr, {}, {}};
  bool begins_with_system_ = false;
  bool joins_ = false;  // the last message is a result as text
};

void append_rendered(jinja::Rendered& out, std::string_view text, bool from_template) {
  if (text.empty()) return;
  if (out.pieces.empty() || out.pieces.back().from_template != from_template) {
    out.pieces.push_back({"", from_template});
  }
  out.pieces.back().text += text;
}

}  // namespace

bool is_plain(const OrderedJson& messages, const OrderedJson& tools) {
  if (!tools.is_null() || !messages.is_array()) return false;
  bool first = true;
  for (const OrderedJson& message : messages) {
    if (!message.is_object()) return false;
    for (const auto& [key, value] : message.items()) {
      if (key == "tool_calls" || key == "reasoning_content" || key == "reasoning" ||
          key == "thinking" || (key == "content" && !value.is_string())) {
        return false;
      }
      if (key == "role" && (says(value, "tool") || (says(value, "system") && !first))) return false;
    }
    first = false;
  }
  return true;
}

History prepare_history(const ChatFormat& format, OrderedJson messages, OrderedJson tools) {
  return HistoryWriter(format, std::move(messages), std::move(tools)).take();
}

void put_calls(const History& history, jinja::Rendered& prompt) {
  if (history.written.empty()) return;
  jinja::Rendered out;
  out.steps = prompt.steps;
  const std::string begin = history.word + "n";
  std::vector<bool> placed(history.written.size());  // each stands once
  for (const jinja::Piece& segment : prompt.pieces) {
    std::string_view rest = segment.text;
    size_t at = segment.from_template ? std::string_view::npos : rest.find(begin);
    for (; at != std::string_view::npos; at = rest.find(begin)) {
      append_rendered(out, rest.substr(0, at), false);
      rest.remove_prefix(at + begin.size());
      size_t number = 0;
      const char* end = rest.data() + rest.size();
      const auto read = std::from_chars(rest.data(), end, number);
      if (read.ec != std::errc() || number >= history.written.size() || read.ptr == end ||
          *read.ptr != 'x' || placed[number]) {
        append_rendered(out, begin, false);
        continue;
      }
      placed[number] = true;
      for (const jinja::Piece& part : history.written[number]) {
        append_rendered(out, part.text, part.from_template);
      }
      rest.remove_prefix(static_cast<size_t>(read.ptr - rest.data()) + 1);
    }
    append_rendered(out, rest, segment.from_template);
  }
  prompt = std::move(out);
}

std::string call_id(uint64_t request, uint32_t call, IdStyle style) {
  const bool nine = style == IdStyle::kNine;
  const std::string id = letters(request, call, nine ? 9 : 24);
  return nine ? id : (style == IdStyle::kAnthropic ? "toolu_" : "call_") + id;
}

std::vector<Tool> tools_of(const OrderedJson& tools) {
  std::vector<Tool> out;
  if (!tools.is_array()) return out;
  for (const OrderedJson& entry : tools) {
    if (!entry.is_object() || !entry.contains("function")) continue;
    const OrderedJson& function = entry["function"];
    Tool tool;
    tool.name = text_member(function, "name");
    tool.description = text_member(function, "description");
    if (!is_tool_name(tool.name)) continue;
    if (function.contains("parameters")) tool.parameters = function["parameters"];
    const auto strict = function.find("strict");
    if (strict != function.end() && strict->is_boolean()) tool.strict = strict->get<bool>();
    out.push_back(std::move(tool));
  }
  return out;
}

}  // namespace skein::dialog
