// Hugging Face's tokenizer.json, from untrusted bytes.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace skein {

// A part that is not supported (a WordPiece model, a regex that no published tokenizer uses, ...)
// is kUnimplemented and named; one that is malformed is kDataLoss. The caller has bounded the size
// of `json`.
Result<TokenizerSpec> parse_tokenizer_json(std::string_view json);

}  // namespace skein
