#include "dialog/known_formats.h"

#include <algorithm>

#include "dialog/units.h"

namespace skein::dialog {
namespace {

struct CallName {
  std::string_view marker, name;
};

constexpr CallName kCallNames[] = {
    {"<seed:tool_call>", "seed-oss"},
    {"<tool_call><function=", "qwen3-coder"},
    {"<minimax:tool_call>", "minimax-m2"},
    {"DSML", "deepseek-dsml"},
    {"<|tool_calls_section_begin|>", "kimi-k2"},
    {"<｜tool▁calls▁begin｜>", "deepseek"},
    {"<|START_ACTION|>", "command"},
    {"<TOOLCALL>", "nemotron"},
    {"<tool_calls>", "apriel"},
    {"<|tool_call|>", "granite"},
    {"functools", "phi-4"},
    {"[TOOL_CALLS]", "mistral"},
    {"<function=", "functionary"},
    {"<|role_sep|>", "gigachat"},
};

// The markers of kinds of calls that a template only tells the model about. Those without a literal
// are told by the calls that their templates write, or by their name.
struct KnownCalls {
  std::string_view literal;
  CallShape shape;
  std::string_view name;
  std::string_view section_begin = "", call_begin = "", body = "", call_end = "", separator = "",
                   section_end = "";
  std::string_view quote = "";
  std::string_view name_key = "name", arguments_key = "arguments";  // kJson
  // kTagged
  std::string_view key_begin = "", key_end = "", value_end = "", empty_body = "";
  bool python_words = false;
  bool parallel = true;
};

constexpr std::string_view kJsonBody = "{\"name\": \"\x03\", \"arguments\": \x04}";

constexpr KnownCalls kKnownCalls[] = {
    {"<|tool_calls_section_begin|>", CallShape::kNameJson, "kimi-k2",
     "<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
     "\x03:\x01<|tool_call_argument_begin|>\x04", "<|tool_call_end|>", "",
     "<|tool_calls_section_end|>"},
    {"<｜tool▁calls▁begin｜>", CallShape::kNameJson, "deepseek", "<｜tool▁calls▁begin｜>",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\x03\n```json\n\x04\n```",
     "<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>"},
    {"<|tool_list_start|>", CallShape::kLoose, "lfm2", "<|tool_call_start|>[", "", "\x03(\x04)", "",
     ", ", "]<|tool_call_end|>"},
    {"List of tools: [", CallShape::kLoose, "lfm2", "<|tool_call_start|>[", "", "\x03(\x04)", "",
     ", ", "]<|tool_call_end|>"},
    {"<|tool_call>", CallShape::kLoose, "gemma-4", "", "<|tool_call>call:", "\x03{\x04}",
     "<tool_call|>", "", "", "<|\"|>"},
    {"<start_function_call>", CallShape::kLoose, "function-gemma", "",
     "<start_function_call>call:", "\x03{\x04}", "<end_function_call>", "", "", "<escape>"},
    {"<function_calls>", CallShape::kLoose, "olmo-3", "<function_calls>", "", "\x03(\x04)", "",
     "\n", "</function_calls>"},
    {"<|tool_call|>", CallShape::kJson, "granite", "<|tool_call|>[", "", kJsonBody, "", ", ", "]"},
    // Its template prints nested values as Python does, and tells the model about the rest.
    {.literal = "<seed:tool_call>",
     .shape = CallShape::kTagged,
     .name = "seed-oss",
     .call_begin = "<seed:tool_call>\n<function=",
     .body = "\x03>\n\x04",
     .call_end = "</function>\n</seed:tool_call>",
     .separator = "\n",
     .key_begin = "<parameter=",
     .key_end = ">",
     .value_end = "</parameter>\n",
     .empty_body = "\x03>\n",
     .python_words = true},
    {"functools", CallShape::kJson, "phi-4", "functools[", "", kJsonBody, "", ", ", "]"},
    {"<tool_call>\n{\"name\"", CallShape::kJson, "hermes", "", "<tool_call>\n", kJsonBody,
     "\n</tool_call>", "\n", ""},
    {"", CallShape::kJson, "mistral", "[TOOL_CALLS][", "",
     "{\"name\": \"\x03\", \"arguments\": \x04, \"id\": \"\x02\"}", "", ", ", "]"},
    {.literal = "",
     .shape = CallShape::kJson,
     .name = "llama-3",
     .body = "{\"name\": \"\x03\", \"parameters\": \x04}",
     .arguments_key = "parameters",
     .parallel = false},
    {.literal = "",
     .shape = CallShape::kTagged,
     .name = "qwen3-coder",
     .call_begin = "<tool_call>\n<function=",
     .body = "\x03>\n\x04",
     .call_end = "</function>\n</tool_call>",
     .separator = "\n",
     .key_begin = "<parameter=",
     .key_end = ">\n",
     .value_end = "\n</parameter>\n",
     .empty_body = "\x03>\n",
     .python_words = true},
    {.literal = "",
     .shape = CallShape::kTagged,
     .name = "glm",
     .call_begin = "<tool_call>",
     .body = "\x03\x04",
     .call_end = "</tool_call>",
     .key_begin = "<arg_key>",
     .key_end = "</arg_key><arg_value>",
     .value_end = "</arg_value>"},
    {.literal = "",
     .shape = CallShape::kTagged,
     .name = "minimax-m2",
     .section_begin = "<minimax:tool_call>",
     .call_begin = "\n<invoke name=\"",
     .body = "\x03\">\n\x04",
     .call_end = "</invoke>",
     .section_end = "\n</minimax:tool_call>",
     .key_begin = "<parameter name=\"",
     .key_end = "\">",
     .value_end = "</parameter>\n"},
    {.literal = "",
     .shape = CallShape::kJson,
     .name = "command",
     .section_begin = "<|START_ACTION|>[",
     .call_begin = "\n    ",
     .body = "{\"tool_call_id\": \"\x01\", \"tool_name\": \"\x03\", \"parameters\": \x04}",
     .separator = ",",
     .section_end = "\n]<|END_ACTION|>",
     .name_key = "tool_name",
     .arguments_key = "parameters"},
    {.literal = "", .shape = CallShape::kHarmony, .name = "harmony"},
};

CallFormat calls_of(const KnownCalls& known) {
  CallFormat format;
  format.name = known.name;
  format.shape = known.shape;
  format.section_begin = known.section_begin;
  format.call_begin = known.call_begin;
  format.body = known.body;
  format.call_end = known.call_end;
  format.separator = known.separator;
  format.section_end = known.section_end;
  format.quote = known.quote;
  format.key_begin = known.key_begin;
  format.key_end = known.key_end;
  format.value_end = known.value_end;
  format.empty_body = known.empty_body;
  format.python_words = known.python_words;
  format.parallel = known.parallel;
  if (known.shape == CallShape::kJson) {
    format.name_key = known.name_key;
    format.arguments_key = known.arguments_key;
  }
  return format;
}

constexpr std::pair<std::string_view, std::string_view> kThoughts[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<seed:think>", "</seed:think>"},
};

}  // namespace

namespace {

ReasoningFormat thoughts_between(std::string_view begin, std::string_view end) {
  ReasoningFormat format;
  format.begin = begin;
  format.end = end;
  format.name = name_of(format);
  return format;
}

}  // namespace

bool has_literal(std::span<const std::string> literals, std::string_view text) {
  return std::any_of(literals.begin(), literals.end(), [&](const std::string& literal) {
    return literal.find(text) != std::string::npos;
  });
}

std::string name_of(const CallFormat& format) {
  std::string pieces;
  for (const char c : format.section_begin + format.call_begin) {
    if (!is_space(static_cast<unsigned char>(c))) pieces.push_back(c);
  }
  for (const CallName& known : kCallNames) {
    if (pieces.find(known.marker) != std::string::npos) return std::string(known.name);
  }
  switch (format.shape) {
    case CallShape::kJson:
      if (pieces.empty()) return format.arguments_key == "parameters" ? "llama-3" : "json";
      return pieces == "<tool_call>" ? "hermes" : "json-tagged";
    case CallShape::kNameJson:
      return "name-json";
    case CallShape::kTagged:
      return pieces == "<tool_call>" ? "glm" : "tagged";
    case CallShape::kLoose:
      return "pythonic";
    case CallShape::kHarmony:
      return "harmony";
  }
  return "";
}

std::string name_of(const ReasoningFormat& format) {
  if (format.begin == "[THINK]") return "mistral-think";  // beside <think>
  std::string name;
  for (const char c : format.begin) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
    if (letter) name.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  }
  return name.empty() ? "none" : name;
}

std::optional<CallFormat> known_calls(std::span<const std::string> literals) {
  for (const KnownCalls& known : kKnownCalls) {
    if (!known.literal.empty() && has_literal(literals, known.literal)) return calls_of(known);
  }
  return std::nullopt;
}

std::optional<CallFormat> calls_by_name(std::string_view name) {
  if (name == "generic") return generic_calls();
  for (const KnownCalls& known : kKnownCalls) {
    if (known.name == name) return calls_of(known);
  }
  return std::nullopt;
}

std::vector<std::string> call_format_names() {
  std::vector<std::string> names = {"generic"};
  for (const KnownCalls& known : kKnownCalls) {
    if (names.back() != known.name) names.emplace_back(known.name);
  }
  return names;
}

std::optional<ReasoningFormat> known_reasoning(std::span<const std::string> literals) {
  for (const auto& [begin, end] : kThoughts) {
    if (has_literal(literals, end)) return thoughts_between(begin, end);
  }
  return std::nullopt;
}

std::optional<ReasoningFormat> reasoning_by_name(std::string_view name) {
  if (name == "none") return ReasoningFormat();
  for (const auto& [begin, end] : kThoughts) {
    ReasoningFormat format = thoughts_between(begin, end);
    if (format.name == name) return format;
  }
  return std::nullopt;
}

std::vector<std::string> reasoning_format_names() {
  std::vector<std::string> names = {"none"};
  for (const auto& [begin, end] : kThoughts) {
    const std::string name = thoughts_between(begin, end).name;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

bool is_harmony(std::span<const std::string> literals) {
  return has_literal(literals, "<|channel|>") && has_literal(literals, "<|message|>") &&
         has_literal(literals, "<|start|>");
}

CallFormat generic_calls() {
  CallFormat format;
  format.lead = "\n";
  format.call_begin = "<tool_call>\n";
  format.body = kJsonBody;
  format.call_end = "\n</tool_call>";
  format.separator = "\n";
  format.name_key = "name";
  format.arguments_key = "arguments";
  return format;
}

std::string_view source_name(FormatSource source) {
  switch (source) {
    case FormatSource::kTemplate:
      return "template";
    case FormatSource::kSignature:
      return "signature";
    case FormatSource::kGeneric:
      return "generic";
    case FormatSource::kOption:
      return "option";
  }
  return "";
}

}  // namespace skein::dialog
