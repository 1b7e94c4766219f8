// The tokenizer of an opened model, and the ids that end its answers.
#pragma once

#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "format/weight_source.h"
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

}  // namespace skein
