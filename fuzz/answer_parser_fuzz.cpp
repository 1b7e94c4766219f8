// An answer in one of the formats, read whole and in pieces that the input chooses: the events
// joined are the same, texts are whole characters, and arguments that end are one JSON object.
// The first byte is the format, the second how the rest is cut.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "dialog/answer_parser.h"
#include "dialog/json_scanner.h"
#include "dialog/known_formats.h"
#include "text/utf8.h"

namespace {

using namespace skein;
using namespace skein::dialog;

ChatFormat tagged_format() {
  ChatFormat format;
  format.calls.shape = CallShape::kTagged;
  format.calls.call_begin = "<tool_call>\n<function=";
  format.calls.body = "\x03>\n\x04";
  format.calls.call_end = "</function>\n</tool_call>";
  format.calls.key_begin = "<parameter=";
  format.calls.key_end = ">\n";
  format.calls.value_end = "\n</parameter>\n";
  return format;
}

std::vector<ChatFormat> formats() {
  std::vector<ChatFormat> all(2);
  all[1] = tagged_format();
  ChatFormat bare;
  bare.calls.call_begin = bare.calls.call_end = bare.calls.separator = "";
  bare.calls.arguments_key = "parameters";
  bare.text_begin = "<|python_tag|>";
  all.push_back(bare);
  ChatFormat channels;
  channels.calls.shape = CallShape::kHarmony;
  all.push_back(channels);
  for (const char* literal : {"<|tool_calls_section_begin|>", "<|tool_call|>", "List of tools: [",
                              "<start_function_call>"}) {
    const std::vector<std::string> literals = {literal};
    ChatFormat known;
    known.calls = *known_calls(literals);
    all.push_back(known);
  }
  for (ChatFormat& format : all) {
    format.reasoning.begin = "<think>";
    format.reasoning.end = "</think>";
  }
  return all;
}

std::vector<std::shared_ptr<const AnswerSyntax>> syntaxes() {
  Tool tool;
  tool.name = "f";
  tool.parameters = {{"properties", {{"s", {{"type", "string"}}}, {"n", {{"type", "integer"}}}}}};
  std::vector<std::shared_ptr<const AnswerSyntax>> all;
  for (const ChatFormat& format : formats()) {
    all.push_back(std::make_shared<const AnswerSyntax>(std::make_shared<const ChatFormat>(format),
                                                       Markers(), std::vector<Tool>{tool}));
  }
  return all;
}

struct Joined {
  std::string all, arguments;
  DialogEvent::Kind last = DialogEvent::Kind::kText;

  void take(const std::vector<DialogEvent>& events) {
    for (const DialogEvent& event : events) {
      SKEIN_CHECK(utf8_repaired(event.text) == event.text, "a character is cut");
      if (event.kind == DialogEvent::Kind::kCallBegin) arguments.clear();
      if (event.kind == DialogEvent::Kind::kArguments) arguments += event.text;
      if (event.kind == DialogEvent::Kind::kCallEnd) {
        SKEIN_CHECK(is_whole_json(arguments) && arguments[0] == '{', "no object: {}", arguments);
      }
      const bool mark =
          event.kind == DialogEvent::Kind::kCallBegin || event.kind == DialogEvent::Kind::kCallEnd;
      if (mark || event.kind != last) all += '\0' + std::to_string(static_cast<int>(event.kind));
      last = event.kind;
      all += event.text;
    }
  }
};

std::string read(const std::shared_ptr<const AnswerSyntax>& syntax, std::string_view text,
                 bool thinking, uint64_t seed) {
  AnswerParser parser(syntax, thinking);
  std::vector<DialogEvent> events;
  Joined joined;
  Rng rng(seed);
  while (!text.empty()) {
    const size_t length = seed == 0 ? text.size() : rng.between(1, 1 + seed % 16);
    parser.push_text(text.substr(0, length), events);
    joined.take(events);
    text.remove_prefix(std::min(length, text.size()));
  }
  parser.finish(events);
  joined.take(events);
  SKEIN_CHECK(parser.whole_calls() <= parser.calls() + 1 && parser.calls() <= kMaxCalls,
              "{} of {} calls", parser.whole_calls(), parser.calls());
  return joined.all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto all = syntaxes();
  if (size < 2) return 0;
  const auto& syntax = all[data[0] % all.size()];
  const bool thinking = data[0] >= 128;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string whole = read(syntax, text, thinking, 0);
  SKEIN_CHECK(read(syntax, text, thinking, 1 + data[1]) == whole, "another answer in pieces");
  return 0;
}
