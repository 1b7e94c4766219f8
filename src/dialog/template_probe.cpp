#include "dialog/template_probe.h"

#include <algorithm>

#include "dialog/call_writer.h"
#include "dialog/units.h"

namespace skein::dialog {
namespace {

constexpr uint64_t kProbeSteps = 400'000;

bool is_white(char c) {
  return is_space(static_cast<unsigned char>(c));
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

size_t lexeme_length(std::string_view text) {
  if (const auto markers = markers_in(text.substr(0, 64));
      !markers.empty() && markers[0].data() == text.data()) {
    return markers[0].size();
  }
  const auto run = [&](bool (*in)(char)) {
    return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), in) - text.begin());
  };
  if (is_white(text[0])) return run(is_white);
  return is_word(text[0]) ? run(is_word) : 1;
}

}  // namespace

// Some templates name the types of properties and know no null: they get none to name.
TemplateProbe::TemplateProbe(const ChatTemplate& chat) : chat_(chat), tools_(probe_tools()) {
  const OrderedJson question = OrderedJson::array({probe_user()});
  if (render(question, true)) return;
  tools_[0]["function"]["parameters"]["properties"].erase("skein_nothing");
  if (!render(question, true)) tools_ = probe_tools();
}

std::optional<std::string> TemplateProbe::render(OrderedJson messages, bool generation_prompt,
                                                 std::optional<bool> thinking) const {
  OrderedJson context = {{"messages", std::move(messages)},
                         {"tools", tools_},
                         {"documents", nullptr},
                         {"add_generation_prompt", generation_prompt}};
  if (thinking) context["enable_thinking"] = *thinking;
  jinja::RenderOptions options;
  options.limits.steps = kProbeSteps;
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 1;
  options.now = now;
  const Result<jinja::Rendered> rendered = chat_.render(context, options);
  if (!rendered.ok()) return std::nullopt;
  return rendered->text();
}

std::optional<std::string> TemplateProbe::behind_user(OrderedJson messages, bool generation_prompt,
                                                      std::optional<bool> thinking) const {
  const auto text = render(std::move(messages), generation_prompt, thinking);
  if (!text) return std::nullopt;
  const size_t at = text->rfind(kProbeUser);
  if (at == std::string::npos) return std::nullopt;
  return text->substr(at + kProbeUser.size());
}

OrderedJson probe_tools() {
  OrderedJson tools = OrderedJson::array();
  for (const Tool& tool : probe_tool_list()) {
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", tool.name},
                       {"description", tool.description},
                       {"parameters", tool.parameters}}}});
  }
  return tools;
}

std::vector<Tool> probe_tool_list() {
  const auto property = [](const char* type) {
    return OrderedJson{{"type", type}, {"description", "d"}};
  };
  Tool tool;
  tool.name = kProbeTool;
  tool.description = "d";
  tool.parameters = {{"type", "object"},
                     {"properties",
                      {{"skein_first", property("string")},
                       {"skein_second", property("string")},
                       {"skein_count", property("integer")},
                       {"skein_flag", property("boolean")},
                       {"skein_nothing", property("null")},
                       {"skein_object", property("object")}}},
                     {"required", OrderedJson::array({"skein_first"})}};
  Tool other;
  other.name = "other-tool.b";
  other.description = "d";
  other.parameters = {{"type", "object"}, {"properties", OrderedJson::object()}};
  return {tool, other};
}

OrderedJson probe_user() {
  return {{"role", "user"}, {"content", kProbeUser}};
}

OrderedJson probe_answer(std::string_view content) {
  return {{"role", "assistant"}, {"content", content}};
}

OrderedJson probe_calls(const std::vector<ToolCall>& calls, bool as_text,
                        const OrderedJson& content) {
  OrderedJson message = {{"role", "assistant"}, {"content", content}};
  message["tool_calls"] = OrderedJson::array();
  for (const ToolCall& call : calls) {
    const OrderedJson arguments =
        as_text ? OrderedJson(call.arguments) : OrderedJson::parse(call.arguments);
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", arguments}}}});
  }
  return message;
}

std::vector<std::string_view> lexemes(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t length = lexeme_length(text);
    out.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return out;
}

size_t common_prefix(std::string_view a, std::string_view b) {
  const auto as = lexemes(a), bs = lexemes(b);
  size_t length = 0;
  for (size_t i = 0; i < as.size() && i < bs.size() && as[i] == bs[i]; ++i) length += as[i].size();
  return length;
}

size_t common_suffix(std::string_view a, std::string_view b) {
  const auto as = lexemes(a), bs = lexemes(b);
  size_t length = 0;
  for (size_t i = 0; i < as.size() && i < bs.size(); ++i) {
    const std::string_view last = as[as.size() - 1 - i];
    if (last != bs[bs.size() - 1 - i]) break;
    length += last.size();
  }
  return length;
}

size_t common_turn_end(std::string_view a, std::string_view b) {
  auto as = lexemes(a), bs = lexemes(b);
  size_t length = 0, spaces = 0;
  while (true) {
    for (; !as.empty() && is_white(as.back()[0]); as.pop_back()) spaces += as.back().size();
    while (!bs.empty() && is_white(bs.back()[0])) bs.pop_back();
    if (as.empty() || bs.empty() || as.back() != bs.back()) return length > 0 ? length : spaces;
    length += spaces + as.back().size();
    spaces = 0;
    as.pop_back();
    bs.pop_back();
  }
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_white(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_white(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace skein::dialog
