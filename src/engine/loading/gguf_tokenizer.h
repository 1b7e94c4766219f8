// A GGUF file's tokenizer.ggml.* keys as a TokenizerSpec.
#pragma once

#include "base/status.h"
#include "format/gguf_metadata.h"
#include "text/tokenizer_spec.h"

namespace skein {

// The ids that the file names; kNoToken where it names none and its kind has no default.
struct SpecialIds {
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId eot = kNoToken;
  TokenId eom = kNoToken;
};

struct GgufTokenizer {
  TokenizerSpec spec;
  SpecialIds ids;
};

// kUnimplemented, naming it, for a kind or pre-tokenizer that is not supported.
Result<GgufTokenizer> read_gguf_tokenizer(const gguf::Metadata& metadata);

}  // namespace skein
