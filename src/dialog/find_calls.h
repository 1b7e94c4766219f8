// The calls that a template writes, as a CallFormat.
#pragma once

#include <optional>
#include <string>

#include "dialog/chat_format.h"
#include "dialog/template_probe.h"

namespace skein::dialog {

// What a template writes around an answer of plain text, and the end of its prompt.
struct Turn {
  std::string before_text, after_text, prompt;
};

struct FoundCalls {
  CallFormat format;
  std::string header;    // of the turn, up to the calls
  std::string turn_end;  // behind them
  bool arguments_as_text = false;
  bool null_content = false;
};

// Nothing where the template writes no calls, or in no way that is reproduced.
std::optional<FoundCalls> find_calls(const TemplateProbe& probe, const Turn& turn,
                                     const ReasoningFormat& reasoning);

// Calls that the probes have not seen: quotation marks, markers, nested values, no arguments.
std::vector<std::vector<ToolCall>> unseen_calls(bool parallel);
// Whether the parser gives back what the writer has written.
bool parses_back(const CallFormat& format, const ReasoningFormat& reasoning,
                 const std::vector<ToolCall>& calls);

}  // namespace skein::dialog
