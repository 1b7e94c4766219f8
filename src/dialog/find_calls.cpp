#include "dialog/find_calls.h"

#include <algorithm>

#include "dialog/answer_parser.h"
#include "dialog/call_writer.h"
#include "dialog/json_scanner.h"

namespace skein::dialog {
namespace {

constexpr std::string_view kFirstKey = "skein_first", kFirstValue = "skein_value",
                           kSecondKey = "skein_second", kSecondValue = "skein_last";
constexpr size_t kFar = 512;  // bytes around a word of ours that belong to its call

OrderedJson probe_arguments() {
  return {{kFirstKey, kFirstValue}, {kSecondKey, kSecondValue}};
}

ToolCall probe_call(const char* id, const OrderedJson& arguments) {
  return {id, std::string(kProbeTool), spaced_json(arguments, false)};
}

struct Span {
  size_t begin = 0, end = 0;
  std::string body;  // with places
};

void replace_first(std::string& text, std::string_view what, char place) {
  if (const size_t at = text.find(what); at != std::string::npos) {
    text.replace(at, what.size(), 1, place);
  }
}

// Where the JSON value that begins at `begin` ends; 0: it is none.
size_t json_end(std::string_view text, size_t begin) {
  JsonScanner scanner;
  for (size_t i = begin; i < text.size(); ++i) {
    const JsonScanner::Step step = scanner.push(text[i]);
    if (step == JsonScanner::Step::kEnded) return i + 1;
    if (step != JsonScanner::Step::kTaken) return 0;
  }
  return 0;
}

class CallFinder {
 public:
  CallFinder(const TemplateProbe& probe, const Turn& turn, const ReasoningFormat& reasoning,
             bool as_text, bool null_content)
      : probe_(probe),
        turn_(turn),
        reasoning_(reasoning),
        as_text_(as_text),
        null_content_(null_content) {}

  std::optional<FoundCalls> find() {
    const auto one = behind({probe_call("skein0001", probe_arguments())});
    if (!one) return std::nullopt;
    one_ = *one;
    Span first;
    if (!find_span(one_, 0, "skein0001", first)) return std::nullopt;
    format_.body = first.body;
    std::string section = one_.substr(0, first.begin), after = one_.substr(first.end);
    cut_turn(section, after);
    if (format_.shape == CallShape::kTagged && !cut_tags(after)) return std::nullopt;
    const CallFormat alone = format_;
    if (cut_between(section, after)) {
      if (auto found = refined()) return found;
      format_ = alone;
    }
    format_.parallel = false;
    format_.section_begin = section;
    format_.section_end = after;
    return refined();
  }

 private:
  std::optional<std::string> behind(const std::vector<ToolCall>& calls) const {
    return probe_.behind_user({probe_user(), message(calls)});
  }
  OrderedJson message(const std::vector<ToolCall>& calls) const {
    return probe_calls(calls, as_text_, null_content_ ? OrderedJson() : OrderedJson(""));
  }

  // The first call at `from` or later, and the format's shape.
  bool find_span(const std::string& text, size_t from, std::string_view id, Span& span) {
    const size_t name = text.find(kProbeTool, from);
    if (name == std::string::npos) return false;
    const std::string arguments = spaced_json(probe_arguments(), false);
    const size_t at = text.find(arguments, name);
    if (at == std::string::npos || at - name > kFar) return find_tags(text, name, span);
    span = {name, at + arguments.size(), ""};
    format_.shape = CallShape::kNameJson;
    for (size_t open = name; open-- > from && name - open < kFar;) {
      if (text[open] != '{') continue;
      const size_t end = json_end(text, open);
      if (end < span.end || !find_keys(text.substr(open, end - open))) continue;
      span.begin = open;
      span.end = end;
      format_.shape = CallShape::kJson;
      break;
    }
    span.body = text.substr(span.begin, span.end - span.begin);
    replace_first(span.body, arguments, kArgumentsPlace);
    replace_first(span.body, kProbeTool, kNamePlace);
    replace_first(span.body, id, kIdPlace);
    return true;
  }

  bool find_keys(const std::string& object) {
    const OrderedJson call = OrderedJson::parse(object, nullptr, false);
    if (!call.is_object()) return false;
    format_.name_key.clear();
    format_.arguments_key.clear();
    for (const auto& [key, value] : call.items()) {
      if (value == OrderedJson(kProbeTool)) format_.name_key = key;
      if (value == probe_arguments()) format_.arguments_key = key;
    }
    return !format_.name_key.empty() && !format_.arguments_key.empty();
  }

  bool find_tags(const std::string& text, size_t name, Span& span) {
    size_t at = name + kProbeTool.size();
    size_t ends[4] = {0, 0, 0, 0};
    std::string gaps[4];
    const std::string_view words[4] = {kFirstKey, kFirstValue, kSecondKey, kSecondValue};
    for (int i = 0; i < 4; ++i) {
      const size_t found = text.find(words[i], at);
      if (found == std::string::npos || found - at > kFar) return false;
      gaps[i] = text.substr(at, found - at);
      at = ends[i] = found + words[i].size();
    }
    if (gaps[1] != gaps[3] || gaps[1].empty()) return false;
    format_.shape = CallShape::kTagged;
    format_.key_end = gaps[1];
    before_key_ = gaps[0];
    between_values_ = gaps[2];
    span = {name, at, ""};
    return true;
  }

  // Takes the turn's own pieces, and a thought that is empty, off both sides.
  void cut_turn(std::string& section, std::string& after) {
    size_t header = common_prefix(section, turn_.before_text);
    std::string_view rest = std::string_view(section).substr(header);
    if (!reasoning_.end.empty()) {
      const std::string_view begins = trim(rest);
      const size_t end = rest.find(reasoning_.end);
      if (end != std::string_view::npos &&
          (begins.starts_with(reasoning_.begin) || begins.starts_with(reasoning_.end))) {
        header += end + reasoning_.end.size();
      }
    }
    header_ = section.substr(0, header);
    section.erase(0, header);
    const size_t end = common_turn_end(after, turn_.after_text);
    turn_end_ = after.substr(after.size() - end);
    after.erase(after.size() - end);
  }

  bool cut_tags(std::string& after) {
    const size_t value_end = common_prefix(between_values_, after);
    format_.value_end = between_values_.substr(0, value_end);
    format_.key_begin = between_values_.substr(value_end);
    if (trim(format_.key_begin).empty() || trim(format_.value_end).empty() ||
        !before_key_.ends_with(format_.key_begin)) {
      return false;
    }
    const std::string name_end =
        before_key_.substr(0, before_key_.size() - format_.key_begin.size());
    format_.body = std::string(1, kNamePlace) + name_end + std::string(1, kArgumentsPlace);
    after.erase(0, value_end);
    return true;
  }

  bool cut_between(const std::string& section, const std::string& after) {
    const OrderedJson arguments = probe_arguments();
    const auto two =
        behind({probe_call("skein0001", arguments), probe_call("skein0002", arguments)});
    Span first, second;
    if (!two || !find_span(*two, 0, "skein0001", first) ||
        !find_span(*two, first.end, "skein0002", second)) {
      return false;
    }
    std::string between = two->substr(first.end, second.begin - first.end);
    if (format_.shape == CallShape::kTagged) {
      if (!between.starts_with(format_.value_end)) return false;
      between.erase(0, format_.value_end.size());
    } else if (!find_index(first.body, second.body)) {
      return false;
    }
    const size_t begin = common_suffix(section, between);
    format_.call_begin = section.substr(section.size() - begin);
    format_.section_begin = section.substr(0, section.size() - begin);
    const std::string rest = between.substr(0, between.size() - begin);
    const size_t end = common_prefix(rest, after);
    format_.call_end = rest.substr(0, end);
    format_.separator = rest.substr(end);
    format_.section_end = after.substr(end);
    return true;
  }

  // A number that counts the calls shows as the place where two bodies differ.
  bool find_index(const std::string& first, const std::string& second) {
    if (first.size() != second.size()) return false;
    const auto [a, b] = std::mismatch(first.begin(), first.end(), second.begin());
    if (a == first.end()) return true;
    if (*a != '0' || *b != '1' || !std::equal(a + 1, first.end(), b + 1)) return false;
    format_.body = first;
    format_.body[static_cast<size_t>(a - first.begin())] = kIndexPlace;
    return true;
  }

  // How a value is written that is no string, and a call without arguments.
  bool refine_tags() {
    const std::string before = header_ + format_.section_begin + format_.call_begin;
    const std::string behind_call = format_.call_end + format_.section_end + turn_end_;
    const auto number = behind({probe_call("skein0001", {{"skein_count", 7}})});
    const auto nothing = behind({probe_call("skein0001", OrderedJson::object())});
    if (!number || !nothing) return false;
    const size_t key = number->find("skein_count", before.size());
    if (key == std::string::npos) return false;
    const size_t key_end = key + std::string_view("skein_count").size();
    const size_t value = number->find("7" + format_.value_end, key_end);
    if (value == std::string::npos) return false;
    const std::string other = number->substr(key_end, value - key_end);
    if (other != format_.key_end) format_.key_end_other = other;
    const std::string begin = before + std::string(kProbeTool);
    if (!nothing->starts_with(begin) || !nothing->ends_with(behind_call) ||
        nothing->size() < begin.size() + behind_call.size()) {
      return false;
    }
    const std::string inside =
        nothing->substr(begin.size(), nothing->size() - begin.size() - behind_call.size());
    format_.empty_body = std::string(1, kNamePlace) + inside;
    return true;
  }

  // The spelling of values is what is left to be found: the first that gives the template's bytes.
  std::optional<FoundCalls> refined() {
    if (format_.shape == CallShape::kTagged && !refine_tags()) return std::nullopt;
    for (const bool ascii : {false, true}) {
      for (const bool python_words : {false, true}) {
        if (python_words && format_.shape != CallShape::kTagged) continue;
        format_.ascii = ascii;
        format_.python_words = python_words;
        if (reproduces()) {
          return FoundCalls{format_, header_, turn_end_, as_text_, null_content_};
        }
      }
    }
    return std::nullopt;
  }

  bool reproduces() const {
    const auto cases = unseen_calls(format_.parallel);
    return std::all_of(cases.begin(), cases.end(), [&](const std::vector<ToolCall>& calls) {
      const auto rendered = behind(calls);
      return rendered && *rendered == header_ + write_calls(format_, calls) + turn_end_ &&
             parses_back(format_, reasoning_, calls);
    });
  }

  const TemplateProbe& probe_;
  const Turn& turn_;
  const ReasoningFormat& reasoning_;
  const bool as_text_, null_content_;
  CallFormat format_;
  std::string one_, header_, turn_end_;
  std::string before_key_, between_values_;  // kTagged
};

}  // namespace

std::optional<FoundCalls> find_calls(const TemplateProbe& probe, const Turn& turn,
                                     const ReasoningFormat& reasoning) {
  const std::vector<ToolCall> call = {probe_call("skein0001", probe_arguments())};
  for (const bool null_content : {false, true}) {
    for (const bool as_text : {false, true}) {
      // Only of a template that leaves calls out beside an empty text.
      if (null_content) {
        const auto beside = probe.behind_user({probe_user(), probe_calls(call, as_text)});
        if (beside && beside->find(kProbeTool) != std::string::npos) continue;
      }
      auto found = CallFinder(probe, turn, reasoning, as_text, null_content).find();
      if (found) return found;
    }
  }
  return std::nullopt;
}

std::vector<std::vector<ToolCall>> unseen_calls(bool parallel) {
  const std::string tool(kProbeTool);
  const ToolCall plain = {"abcdef123", tool,
                          R"({"skein_first": "a \"b\" <c> 'd'\n\te\\f é 日本 {\"x\": [1]}"})"};
  const ToolCall mixed = {
      "abcdef124", tool,
      R"({"skein_first": "x", "skein_count": -12, "skein_flag": true, "skein_nothing": null, "skein_object": {"k": [1, "z", {}], "m": false}})"};
  const ToolCall nothing = {"abcdef125", "other-tool.b", "{}"};
  std::vector<std::vector<ToolCall>> cases = {{plain}, {mixed}, {nothing}};
  if (parallel) cases.push_back({mixed, nothing, plain});
  return cases;
}

bool parses_back(const CallFormat& format, const ReasoningFormat& reasoning,
                 const std::vector<ToolCall>& calls) {
  ChatFormat chat;
  chat.calls = format;
  chat.reasoning = reasoning;
  const auto syntax = std::make_shared<const AnswerSyntax>(std::make_shared<const ChatFormat>(chat),
                                                           Markers(), probe_tool_list());
  AnswerParser parser(syntax, false);
  std::vector<ToolCall> found;
  std::vector<DialogEvent> events;
  const auto read = [&] {
    for (const DialogEvent& event : events) {
      if (event.kind == DialogEvent::Kind::kCallBegin) {
        found.push_back({"", std::string(event.text), ""});
      } else if (event.kind == DialogEvent::Kind::kArguments) {
        found.back().arguments += event.text;
      } else if (event.kind != DialogEvent::Kind::kCallEnd) {
        return false;
      }
    }
    return true;
  };
  parser.push_text(write_calls(format, calls), events);
  if (!read()) return false;
  parser.finish(events);
  if (!read() || found.size() != calls.size() || parser.whole_calls() != calls.size()) return false;
  return std::equal(calls.begin(), calls.end(), found.begin(), [](const auto& a, const auto& b) {
    return a.name == b.name && parse_arguments(a.arguments) == parse_arguments(b.arguments);
  });
}

}  // namespace skein::dialog
