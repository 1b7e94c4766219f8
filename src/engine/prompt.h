// From a rendered conversation to the ids that the model gets.
#pragma once

#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/jinja/template.h"
#include "text/tokenizer.h"

namespace skein {

// Only the template's own text yields control tokens: whatever a user types stays text. The
// template writes BOS itself where the model wants one, so none is added.
Result<std::vector<TokenId>> encode_prompt(const Tokenizer& tokenizer,
                                           const jinja::Rendered& prompt);

}  // namespace skein
