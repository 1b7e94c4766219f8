// Random conversations, rendered by a template and parsed back in every chunking.
#pragma once

#include <string>
#include <vector>

#include "dialog/dialog_helpers.h"
#include "dialog/template_probe.h"

namespace skein::dialog::testing {

class RoundTrip {
 public:
  RoundTrip(const ChatTemplateSource& source, uint64_t seed)
      : chat_(std::move(ChatTemplate::create(source)).value()),
        format_(must_find(source)),
        syntax_(syntax_of(format_, tools())),
        rng_(seed) {
    prompt_ = render(OrderedJson::array({user()}), true).value_or("");
    const std::string plain =
        render(OrderedJson::array({user(), {{"role", "assistant"}, {"content", "WORDS"}}}), false)
            .value_or("WORDS");
    after_text_ = plain.substr(plain.find("WORDS") + 5);
  }

  const ChatFormat& format() const { return format_; }

  // The number of calls that came back.
  size_t run(int conversations) {
    size_t calls = 0;
    for (int i = 0; i < conversations; ++i) calls += one();
    return calls;
  }

 private:
  static OrderedJson user() { return {{"role", "user"}, {"content", "QUESTION"}}; }

  static std::vector<Tool> tools() {
    Tool tool;
    tool.name = "get_data.v-1";
    tool.description = "d";
    tool.parameters = OrderedJson::parse(R"({"type": "object", "properties": {
        "text": {"type": "string"}, "more": {"type": "string"}, "count": {"type": "integer"},
        "part": {"type": "number"}, "flag": {"type": "boolean"}, "none": {"type": "null"},
        "list": {"type": "array"}, "object": {"type": "object"},
        "parameters": {"type": "object"}, "arguments": {"type": "string"}, "name": {"type": "string"},
        "items": {"type": "array"}, "keys": {"type": "integer"}, "type": {"type": "string"},
        "function": {"type": "object"}, "properties": {"type": "string"},
        "value": {"type": "string"}}})");
    Tool plain;
    plain.name = "now";
    plain.description = "d";
    plain.parameters = OrderedJson::parse(R"({"type": "object", "properties": {}})");
    return {tool, plain};
  }

  // What stands behind the question.
  std::optional<std::string> render(const OrderedJson& messages, bool prompt) const {
    OrderedJson list = OrderedJson::array();
    for (const Tool& tool : tools()) {
      list.push_back({{"type", "function"},
                      {"function",
                       {{"name", tool.name},
                        {"description", tool.description},
                        {"parameters", tool.parameters}}}});
    }
    const OrderedJson context = {{"messages", messages},
                                 {"tools", list},
                                 {"documents", nullptr},
                                 {"add_generation_prompt", prompt}};
    jinja::RenderOptions options;
    options.now = std::tm{};
    options.now->tm_mday = 1;
    const auto rendered = chat_.render(context, options);
    if (!rendered.ok()) return std::nullopt;
    const std::string text = rendered->text();
    return text.substr(text.rfind("QUESTION") + 8);
  }

  std::string text_of(const std::vector<std::string>& pieces, size_t most) {
    std::string out;
    for (size_t n = rng_.below(most + 1); n > 0; --n) out += pieces[rng_.below(pieces.size())];
    return out;
  }
  // A quoted end of a value is fine, a quoted end of a whole call is not, where nothing is escaped.
  std::string nasty_text() {
    std::vector<std::string> pieces = {
        "a",  " ",  "\n", "\"", "\\",  "'",       "é",
        "日", "\t", "{",  "}",  "[",   "]",       ",",
        ":",  "<",  ">",  "7",  "\\n", "<think>", "\xF0\x9F\x98\x80"};
    if (format_.calls.shape == CallShape::kTagged) {
      pieces.emplace_back(trim(format_.calls.value_end));
    } else {
      pieces.push_back(format_.calls.call_begin + "x");
      pieces.push_back(format_.calls.section_end);
      pieces.push_back(format_.calls.call_end);
    }
    return text_of(pieces, 8);
  }
  OrderedJson any_value(int depth) {
    switch (rng_.below(depth > 0 ? 7 : 5)) {
      case 0:
        return nasty_text();
      case 1:
        return static_cast<int64_t>(rng_.below(2000)) - 1000;
      case 2:
        return rng_.chance(1, 2);
      case 3:
        return nullptr;
      case 4:
        return 0.5;
      case 5: {
        OrderedJson list = OrderedJson::array();
        for (uint64_t n = rng_.below(4); n > 0; --n) list.push_back(any_value(depth - 1));
        return list;
      }
      default: {
        OrderedJson object = OrderedJson::object();
        for (uint64_t n = rng_.below(4); n > 0; --n) {
          object["k" + std::to_string(n)] = any_value(depth - 1);
        }
        return object;
      }
    }
  }
  ToolCall any_call(size_t index) {
    const std::string id = "abcdefgh" + std::to_string(index);
    if (rng_.chance(1, 4)) return {id, "now", "{}"};
    OrderedJson arguments = OrderedJson::object();
    if (rng_.chance(3, 4)) arguments["text"] = nasty_text();
    if (rng_.chance(1, 3)) arguments["count"] = static_cast<int64_t>(rng_.below(100));
    if (rng_.chance(1, 3)) arguments["part"] = 0.25;
    if (rng_.chance(1, 3)) arguments["flag"] = rng_.chance(1, 2);
    if (rng_.chance(1, 3)) arguments["none"] = nullptr;
    if (rng_.chance(1, 3)) arguments["more"] = nasty_text();
    if (rng_.chance(1, 3)) arguments["list"] = OrderedJson::array({any_value(2), any_value(2)});
    if (rng_.chance(1, 3)) arguments["object"] = {{"inner", any_value(3)}};
    add_odd_names(arguments);
    return {id, "get_data.v-1", spaced_json(arguments, false)};
  }
  // What templates and formats call parts of a call, or methods of an object.
  void add_odd_names(OrderedJson& arguments) {
    for (const char* name : {"arguments", "name", "type", "properties", "value"}) {
      if (rng_.chance(1, 6)) arguments[name] = nasty_text();
    }
    for (const char* name : {"parameters", "function"}) {
      if (!rng_.chance(1, 6)) continue;
      arguments[name] = OrderedJson::object();
      arguments[name]["arguments"] = any_value(2);
      if (rng_.chance(1, 2)) arguments[name]["name"] = nasty_text();
    }
    if (rng_.chance(1, 6)) arguments["items"] = OrderedJson::array({any_value(1)});
    if (rng_.chance(1, 6)) arguments["keys"] = static_cast<int64_t>(rng_.below(100));
  }
  std::string words() {
    const std::vector<std::string> pieces = {"word ", "<",  "[", "é ", "<tool",
                                             "\n",    "<|", "{", "日"};
    return "So " + text_of(pieces, 6) + "it is.";
  }

  OrderedJson message_of(const std::string& text, const std::string& thought,
                         const std::vector<ToolCall>& calls) const {
    const bool none = format_.habits.null_content && !calls.empty();
    OrderedJson message = probe_calls(calls, format_.habits.arguments_as_text,
                                      none ? OrderedJson() : OrderedJson(text));
    if (calls.empty()) message.erase("tool_calls");
    if (!thought.empty()) message[format_.reasoning.field] = thought;
    return message;
  }

  size_t one() {
    std::vector<ToolCall> calls;
    const uint64_t count = rng_.below(format_.calls.parallel ? 4 : 2);
    for (uint64_t i = 0; i < count; ++i) calls.push_back(any_call(i));
    std::string text = calls.empty() || rng_.chance(1, 3) ? words() : "";
    if (format_.habits.null_content && !calls.empty()) text.clear();
    std::string thought = !format_.reasoning.field.empty() && rng_.chance(1, 2) ? words() : "";
    const auto behind =
        render(OrderedJson::array({user(), message_of(text, thought, calls)}), false);
    EXPECT_TRUE(behind.has_value());
    if (!behind) return 0;
    const size_t begin = common_prefix(*behind, prompt_);
    const size_t end_bytes =
        behind->ends_with(after_text_) ? after_text_.size() : common_turn_end(*behind, after_text_);
    const size_t end = behind->size() - end_bytes;
    const std::string answer = behind->substr(begin, std::max(begin, end) - begin);
    // A template may write a text behind an open thought, and leave the thought's end to the text.
    const bool opened = opens_reasoning(format_, behind->substr(0, begin)) &&
                        answer.find(format_.reasoning.end) != std::string::npos;
    const Parsed parsed = parse_in_every_way(syntax_, answer, rng_, opened);

    // A template may leave a text or a thought out.
    if (answer.find(text) == std::string::npos) text.clear();
    if (answer.find(thought) == std::string::npos) thought.clear();
    if (calls.empty() || !is_split_turn(answer, text)) {
      EXPECT_EQ(parsed.text, text) << answer;
    }
    EXPECT_EQ(parsed.reasoning, thought) << answer;
    EXPECT_EQ(parsed.calls.size(), calls.size()) << answer;
    for (size_t i = 0; i < std::min(calls.size(), parsed.calls.size()); ++i) {
      EXPECT_TRUE(parsed.whole[i]) << answer;
      EXPECT_EQ(parsed.calls[i].name, calls[i].name) << answer;
      EXPECT_EQ(parse_arguments(parsed.calls[i].arguments), parse_arguments(calls[i].arguments))
          << answer << "\n"
          << parsed.calls[i].arguments;
    }
    return calls.size();
  }

  // A template may give the text a turn of its own, before that of the calls.
  bool is_split_turn(const std::string& answer, const std::string& text) const {
    if (text.empty()) return false;
    const std::string begin = format_.calls.section_begin + format_.calls.call_begin;
    const size_t behind = answer.find(text) + text.size();
    const size_t calls = answer.find(trim(begin), behind);
    return calls == std::string::npos || !trim(answer.substr(behind, calls - behind)).empty();
  }

  ChatTemplate chat_;
  ChatFormat format_;
  Syntax syntax_;
  Rng rng_;
  std::string prompt_, after_text_;
};

}  // namespace skein::dialog::testing
