// The formats of a model, found by asking its own chat template: conversations with words of ours
// in them are rendered, and the pieces around those words are cut out. A format counts only if our
// writer gives the template's bytes for calls that it has not seen, and our parser gives the calls
// back; else the model gets a generic one.
#pragma once

#include <string>

#include "base/status.h"
#include "dialog/chat_format.h"
#include "text/chat_template.h"

namespace skein::dialog {

// About thirty renders within limits that are smaller than a request's. Fails only where the
// template cannot be parsed.
Result<ChatFormat> find_format(const ChatTemplateSource& source);

// What a model is taken to write, whatever its template says.
struct FormatNames {
  std::string calls = "auto";      // what was found; else a name of known_formats.h
  std::string reasoning = "auto";  // likewise
};
// Puts what is named in the place of what was found. kInvalidArgument for a name that is none; says
// which there are.
Status choose_formats(const FormatNames& names, ChatFormat& format);

}  // namespace skein::dialog
