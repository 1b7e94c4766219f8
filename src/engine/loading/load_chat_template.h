// The chat template of an opened model.
#pragma once

#include "base/status.h"
#include "format/weight_source.h"
#include "text/chat_template.h"

namespace skein {

// The files' own template: `tokenizer.chat_template` of a GGUF file, chat_template.jinja or
// tokenizer_config.json of a folder, and the text of the bos and eos tokens. Errors name the key.
Result<ChatTemplateSource> read_chat_template(const WeightSource& source);

// ChatML when the files hold no template. Errors name the model.
Result<ChatTemplate> load_chat_template(const WeightSource& source);

}  // namespace skein
