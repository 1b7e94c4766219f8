// A tokenizer as a tokenizer.json, for programs that read nothing else.
#pragma once

#include <string>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace skein {

// Of BPE over bytes and of SentencePiece's BPE, as GGUF files have them; kUnimplemented for others.
Result<std::string> write_tokenizer_json(const TokenizerSpec& spec);

}  // namespace skein
