// Calls as a format writes them: the template's bytes, and what a history's calls are written as
// where the template does not write them itself.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dialog/chat_format.h"
#include "text/jinja/template.h"

namespace skein::dialog {

// JSON as Hugging Face's tojson spells it; with `ascii`, as Python's json.dumps does.
std::string spaced_json(const OrderedJson& value, bool ascii);

// The object that a call's arguments are; discarded where they are none, or nest too deep. An empty
// text is an empty object.
OrderedJson parse_arguments(std::string_view text);

// Arguments that are no JSON object are written as they are.
std::string write_calls(const CallFormat& format, std::span<const ToolCall> calls);
// Likewise, with the format's own text told from names and arguments.
std::vector<jinja::Piece> write_call_pieces(const CallFormat& format,
                                            std::span<const ToolCall> calls);

}  // namespace skein::dialog
