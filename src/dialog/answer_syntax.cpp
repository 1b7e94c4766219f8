#include <algorithm>

#include "dialog/answer_parser.h"

namespace skein::dialog {

AnswerSyntax::AnswerSyntax(std::shared_ptr<const ChatFormat> chat_format, Markers chat_markers,
                           const std::vector<Tool>& chat_tools, bool with_calls)
    : format(std::move(chat_format)),
      markers(std::move(chat_markers)),
      tools(chat_tools, format->calls.shape == CallShape::kTagged),
      calls(with_calls) {
  reasoning_begin = markers.pattern(format->reasoning.begin);
  reasoning_end = markers.pattern(format->reasoning.end);
  text_begin = markers.pattern(format->text_begin);
  text_end = markers.pattern(format->text_end);
  const CallFormat& call = format->calls;
  if (call.shape == CallShape::kHarmony) {
    start = markers.pattern("<|start|>");
    channel = markers.pattern("<|channel|>");
    message = markers.pattern("<|message|>");
    for (const char* end : {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"}) {
      message_ends.push_back(markers.pattern(end));
    }
    return;
  }
  if (!calls) return;
  const size_t name = call.body.find(kNamePlace), arguments = call.body.find(kArgumentsPlace);
  const bool json = call.shape == CallShape::kJson;
  const std::string prefix = json ? "" : call.body.substr(0, name);
  trigger = markers.pattern(call.section_begin + call.call_begin + prefix);
  next_call = markers.pattern(call.separator + call.call_begin + prefix);
  section_end = markers.pattern(call.section_end);
  if (json || call.shape == CallShape::kLoose) {
    close = markers.pattern(call.call_end);
  } else if (call.shape == CallShape::kNameJson) {
    close = markers.pattern(call.body.substr(arguments + 1) + call.call_end);
  }
  bare = trigger.empty();
  if (bare) bare_call = markers.pattern(call.body.substr(0, name));
}

std::unique_ptr<CallBody> AnswerSyntax::body() const {
  switch (format->calls.shape) {
    case CallShape::kNameJson:
      return name_json_body(format->calls, markers);
    case CallShape::kTagged:
      return tagged_body(format->calls, markers, tools);
    case CallShape::kLoose:
      return loose_body(format->calls, markers, tools);
    default:
      return json_body(format->calls, markers, tools, bare);
  }
}

Markers markers_of(const ChatFormat& format, const Tokenizer& tokenizer) {
  const CallFormat& call = format.calls;
  std::vector<std::string> texts = {call.section_begin,   call.call_begin,   call.call_end,
                                    call.separator,       call.section_end,  call.body,
                                    call.key_begin,       call.key_end,      call.key_end_other,
                                    call.value_end,       call.quote,        format.reasoning.begin,
                                    format.reasoning.end, format.text_begin, format.text_end};
  if (call.shape == CallShape::kHarmony) {
    texts.emplace_back("<|start|><|channel|><|message|><|constrain|><|end|><|call|><|return|>");
  }
  return Markers(tokenizer, texts);
}

bool opens_reasoning(const ChatFormat& format, std::string_view prompt) {
  if (format.reasoning.begin.empty()) return false;
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  return last != std::string_view::npos &&
         prompt.substr(0, last + 1).ends_with(format.reasoning.begin);
}

}  // namespace skein::dialog
