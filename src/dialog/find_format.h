// The formats of a model, found by asking its own chat template: conversations with words of ours
// in them are rendered, and the pieces around those words are cut out. A format counts only if our
// writer gives the template's bytes for calls that it has not seen, and our parser gives the calls
// back; else the model gets a generic one.
#pragma once

#include "base/status.h"
#include "dialog/chat_format.h"
#include "text/chat_template.h"

namespace skein::dialog {

// About thirty renders within limits that are smaller than a request's. Fails only where the
// template cannot be parsed.
Result<ChatFormat> find_format(const ChatTemplateSource& source);

}  // namespace skein::dialog
