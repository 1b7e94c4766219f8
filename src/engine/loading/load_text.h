// What an opened model's files say of its text: the tokenizer, the ids that end its answers, and
// its chat template.
#pragma once

#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "format/weight_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace skein {

struct LoadedTokenizer {
  Tokenizer tokenizer;
  TokenId bos = kNoToken;  // kNoToken where the files name none
  TokenId eos = kNoToken;
  // Sorted: what the files name as the end of a text, a turn or a message, and the tokens by which
  // known families end a turn when they are control tokens here. All of them are control tokens.
  std::vector<TokenId> stop_ids;
};

// Tokens of the chat template (see text/markers.h) never come out of text that a user typed,
// whether or not the files call them special. kNotFound when the files hold no tokenizer. Errors
// name the file.
Result<LoadedTokenizer> load_tokenizer(const WeightSource& source);

// The tokenizer of a GGUF file, as it is before what users must not type is guarded.
Result<TokenizerSpec> read_tokenizer_spec(const WeightSource& source);

// The files' own template: `tokenizer.chat_template` of a GGUF file, chat_template.jinja or
// tokenizer_config.json of a folder, and the text of the bos and eos tokens. Errors name the key.
Result<ChatTemplateSource> read_chat_template(const WeightSource& source);

// ChatML when the files hold no template. Errors name the model.
Result<ChatTemplate> load_chat_template(const WeightSource& source);

}  // namespace skein
