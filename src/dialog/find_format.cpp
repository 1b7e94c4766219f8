#include "dialog/find_format.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <utility>

#include "dialog/answer_parser.h"
#include "dialog/call_writer.h"
#include "dialog/find_calls.h"
#include "dialog/known_formats.h"
#include "dialog/template_probe.h"
#include "dialog/units.h"

namespace skein::dialog {
namespace {

constexpr const char* kThoughtFields[] = {"reasoning_content", "reasoning", "thinking"};

bool shows(const std::optional<std::string>& text, std::string_view word) {
  return text && text->find(word) != std::string::npos;
}

// The first marker behind a word, where nothing but white space stands between.
std::string marker_behind(std::string_view text, std::string_view word) {
  const std::string_view rest = trim(text.substr(text.rfind(word) + word.size()));
  const auto markers = markers_in(rest);
  if (markers.empty() || !rest.starts_with(markers.front())) return {};
  return std::string(markers.front());
}

bool is_bare(const CallFormat& format) {
  return trim(format.section_begin + format.call_begin).empty();
}

ToolCall short_call(const char* id) {
  return {id, std::string(kProbeTool), R"({"skein_first": "a"})"};
}

class FormatFinder {
 public:
  FormatFinder(const ChatTemplate& chat, std::vector<std::string> literals)
      : probe_(chat), literals_(std::move(literals)) {}

  ChatFormat find() {
    find_turn();
    find_reasoning();
    find_calls_of_template();
    find_text_markers();
    if (format_.reasoning_from == FormatSource::kTemplate && !thoughts_come_back()) {
      format_.reasoning = {};
      format_.reasoning_from = FormatSource::kGeneric;
      find_calls_of_template();
      find_text_markers();
    }
    if (format_.habits.writes_calls && !calls_come_back()) {
      const bool shows_tools = format_.habits.shows_tools;
      format_.calls = generic_calls();
      format_.calls_from = FormatSource::kGeneric;
      format_.habits = {};
      format_.habits.shows_tools = shows_tools;
    }
    find_habits();
    return format_;
  }

 private:
  void find_turn() {
    if (const auto text = probe_.behind_user({probe_user(), probe_answer(kProbeText)})) {
      const size_t at = text->find(kProbeText);
      if (at != std::string::npos) {
        turn_.before_text = text->substr(0, at);
        turn_.after_text = text->substr(at + kProbeText.size());
        has_turn_ = true;
      }
    }
    turn_.prompt = probe_.behind_user(OrderedJson::array({probe_user()}), true).value_or("");
  }

  // The markers next to a thought, in a message that also has a text, or a call.
  bool find_thought(OrderedJson message, const char* field, std::string_view behind) {
    message[field] = kProbeThought;
    const auto text = probe_.behind_user({probe_user(), std::move(message)});
    if (!shows(text, kProbeThought)) return false;
    const size_t at = text->find(kProbeThought), end = at + kProbeThought.size();
    const size_t next = text->find(behind, end);
    const size_t header = common_prefix(std::string_view(*text).substr(0, at), turn_.before_text);
    const auto before = markers_in(std::string_view(*text).substr(header, at - header));
    const auto after =
        markers_in(std::string_view(*text).substr(end, std::min(next, text->size()) - end));
    if (before.empty() || after.empty()) return false;
    format_.reasoning.begin = before.back();
    format_.reasoning.end = after.front();
    format_.reasoning.field = field;
    format_.reasoning.name = name_of(format_.reasoning);
    // With a word behind the marker, where there is one.
    const size_t marker = static_cast<size_t>(before.back().data() - text->data());
    format_.reasoning.begin = trim(std::string_view(*text).substr(marker, at - marker));
    format_.reasoning_from = FormatSource::kTemplate;
    return true;
  }

  void find_reasoning() {
    if (is_harmony(literals_)) {
      format_.reasoning.name = "harmony";
      format_.reasoning.field = "thinking";
      format_.reasoning_from = FormatSource::kSignature;
      return;
    }
    for (const char* field : kThoughtFields) {
      if (find_thought(probe_answer(kProbeText), field, kProbeText) ||
          find_thought(probe_calls({short_call("skein0001")}, false), field, kProbeTool)) {
        return;
      }
    }
    if (const auto known = known_reasoning(literals_)) {
      format_.reasoning = *known;
      format_.reasoning_from = FormatSource::kSignature;
    }
  }

  void find_calls_of_template() {
    format_.habits.shows_tools =
        shows(probe_.render(OrderedJson::array({probe_user()}), true), kProbeTool);
    // Without a turn of plain text nobody knows where the calls begin and end.
    auto found = has_turn_ ? find_calls(probe_, turn_, format_.reasoning) : std::nullopt;
    if (found && is_readable(found->format)) {
      format_.calls = found->format;
      read_as_channels();
      format_.calls.name = name_of(format_.calls);
      format_.calls_from = FormatSource::kTemplate;
      format_.habits.writes_calls = true;
      format_.habits.arguments_as_text = found->arguments_as_text;
      format_.habits.null_content = found->null_content;
      return;
    }
    const auto known = known_calls(literals_);
    if (format_.habits.shows_tools && known && passes_through(*known)) {
      format_.calls = *known;
      format_.calls_from = FormatSource::kSignature;
    }
  }

  struct Reading {
    std::string thought, text, calls;
  };

  // A turn of the template's, read as an answer; nothing where the prompt does not end before it.
  std::optional<Reading> read_back(const OrderedJson& message) const {
    const auto rendered = probe_.behind_user({probe_user(), message});
    if (!rendered) return std::nullopt;
    std::string_view prompt = trim(turn_.prompt);
    const std::string& begin = format_.reasoning.begin;
    if (!begin.empty() && prompt.ends_with(begin)) prompt.remove_suffix(begin.size());
    std::string_view answer = trim(*rendered);
    if (!answer.starts_with(trim(prompt))) return std::nullopt;
    answer.remove_prefix(trim(prompt).size());
    answer.remove_suffix(common_turn_end(answer, turn_.after_text));
    const auto syntax = std::make_shared<const AnswerSyntax>(
        std::make_shared<const ChatFormat>(format_), Markers(), probe_tool_list());
    AnswerParser parser(syntax, false);
    Reading out;
    std::vector<DialogEvent> events;
    const auto take = [&] {
      for (const DialogEvent& event : events) {
        if (event.kind == DialogEvent::Kind::kReasoning) out.thought += event.text;
        if (event.kind == DialogEvent::Kind::kText) out.text += event.text;
        if (event.kind == DialogEvent::Kind::kCallBegin) out.calls += event.text;
      }
    };
    parser.push_text(answer, events);
    take();
    parser.finish(events);
    take();
    return out;
  }

  // The turns of the template, with and without a thought, are read as what they are.
  bool thoughts_come_back() const {
    const char* field = format_.reasoning.field.c_str();
    OrderedJson text = probe_answer(kProbeText), call = calls_message("skein0001");
    const auto plain = read_back(text);
    if (plain && (!trim(plain->thought).empty() || trim(plain->text) != kProbeText)) return false;
    text[field] = call[field] = kProbeThought;
    const auto come_back = [&](const OrderedJson& message) {
      const auto rendered = probe_.behind_user({probe_user(), message});
      const auto read = shows(rendered, kProbeThought) ? read_back(message) : std::nullopt;
      const bool is_call = message.contains("tool_calls");
      return !read || (trim(read->thought) == kProbeThought &&
                       trim(read->text) == (is_call ? "" : kProbeText) &&
                       read->calls == (is_call ? kProbeTool : ""));
    };
    return come_back(text) && (!format_.habits.writes_calls || come_back(call));
  }

  // A call is read as one behind a text, too, unless each is a turn of its own.
  bool calls_come_back() const {
    OrderedJson call = calls_message("skein0001");
    const auto is_call = [&] {
      const auto read = read_back(call);
      return !read || read->calls == kProbeTool;
    };
    if (!is_call()) return false;
    if (format_.habits.null_content) return true;
    const auto alone = probe_.behind_user({probe_user(), call});
    call["content"] = kProbeText;
    const auto both = probe_.behind_user({probe_user(), call});
    return is_call() || (alone && both && trim(*both).ends_with(trim(*alone)));
  }

  OrderedJson calls_message(const char* id) const {
    const TemplateHabits& habits = format_.habits;
    return probe_calls({short_call(id)}, habits.arguments_as_text,
                       habits.null_content ? OrderedJson() : OrderedJson(""));
  }

  // A template with the words of harmony may still write calls in a way of its own.
  void read_as_channels() {
    if (!is_harmony(literals_)) return;
    CallFormat channels = format_.calls;
    channels.shape = CallShape::kHarmony;
    const auto cases = unseen_calls(channels.parallel);
    if (std::all_of(cases.begin(), cases.end(), [&](const std::vector<ToolCall>& calls) {
          return parses_back(channels, format_.reasoning, calls);
        })) {
      format_.calls = channels;
    }
  }

  // Bare names cannot be told from text; bare JSON can, by its tool.
  static bool is_readable(const CallFormat& format) {
    return format.shape == CallShape::kJson || !is_bare(format);
  }

  // A template that writes no calls must leave ours in a text as they are.
  bool passes_through(const CallFormat& format) const {
    const auto cases = unseen_calls(true);
    return std::all_of(cases.begin(), cases.end(), [&](const std::vector<ToolCall>& calls) {
      const std::string written = write_calls(format, calls);
      const auto text = probe_.behind_user({probe_user(), probe_answer(written)});
      return shows(text, written) && parses_back(format, format_.reasoning, calls);
    });
  }

  void find_text_markers() {
    if (format_.calls.shape == CallShape::kHarmony) return;
    const std::string before =
        turn_.before_text.substr(common_prefix(turn_.before_text, turn_.prompt));
    for (const std::string_view marker : markers_in(before)) {
      if (marker != format_.reasoning.begin && marker != format_.reasoning.end) {
        format_.text_begin = marker;
      }
    }
    format_.space_first = !before.empty() && trim(before).empty();
    if (format_.text_begin.empty()) return find_known_text_markers();
    const auto behind = markers_in(turn_.after_text);
    if (!behind.empty()) format_.text_end = behind.front();
  }

  // Markers that a template only tells the model about.
  void find_known_text_markers() {
    if (has_literal(literals_, "<response>") && has_literal(literals_, "</response>")) {
      format_.text_begin = "<response>";
      format_.text_end = "</response>";
    } else if (is_bare(format_.calls) && has_literal(literals_, "<|python_tag|>")) {
      format_.text_begin = "<|python_tag|>";  // Llama may write it before a call
    }
  }

  void find_habits() {
    TemplateHabits& habits = format_.habits;
    const OrderedJson result = {{"role", "tool"},
                                {"name", kProbeTool},
                                {"tool_call_id", "skein0001"},
                                {"content", kProbeResult}};
    const OrderedJson answer =
        habits.writes_calls ? calls_message("skein0001") : probe_answer(kProbeText);
    const auto with_result = probe_.render({probe_user(), answer, result}, true);
    habits.writes_results = shows(with_result, kProbeResult);
    if (habits.writes_results) habits.result_end = marker_behind(*with_result, kProbeResult);
    if (habits.writes_calls) {
      const auto message = calls_message("call_abcdefghijklmnopqrstuvwx");
      habits.nine_character_ids = !probe_.render({probe_user(), message}, false).has_value();
    }
    const OrderedJson later = {{"role", "system"}, {"content", kProbeResult}};
    habits.takes_system = shows(probe_.render({later, probe_user()}, true), kProbeResult);
    habits.takes_later_system =
        shows(probe_.render({probe_user(), probe_answer(kProbeText), later, probe_user()}, true),
              kProbeResult);
  }

  TemplateProbe probe_;
  std::vector<std::string> literals_;
  Turn turn_;
  bool has_turn_ = false;  // a text came back in it
  ChatFormat format_;
};

}  // namespace

Result<ChatFormat> find_format(const ChatTemplateSource& source) {
  SKEIN_ASSIGN(const ChatTemplate chat, ChatTemplate::create(source));
  return FormatFinder(chat, literals_of(source)).find();
}

Status choose_formats(const FormatNames& names, ChatFormat& format) {
  if (names.calls != "auto" && names.calls != format.calls.name) {
    auto calls = calls_by_name(names.calls);
    if (!calls) {
      return invalid_argument("tool format '{}' is not known; there are auto, {}", names.calls,
                              fmt::join(call_format_names(), ", "));
    }
    format.calls = std::move(*calls);
    format.calls_from = FormatSource::kOption;
    format.habits.writes_calls = false;  // not these: a history has them as text
  }
  if (names.reasoning != "auto" && names.reasoning != format.reasoning.name) {
    auto reasoning = reasoning_by_name(names.reasoning);
    if (!reasoning) {
      return invalid_argument("reasoning format '{}' is not known; there are auto, {}",
                              names.reasoning, fmt::join(reasoning_format_names(), ", "));
    }
    reasoning->field = format.reasoning.field;
    format.reasoning = std::move(*reasoning);
    format.reasoning_from = FormatSource::kOption;
  }
  return {};
}

}  // namespace skein::dialog
