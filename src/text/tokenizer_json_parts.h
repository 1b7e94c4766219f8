// The parts of a tokenizer.json beside its model: how text is prepared, and put together again.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace skein::tokenizer_json {

using Json = nlohmann::json;

// The member `key` of an object; nullptr when it is not there or null.
const Json* member(const Json& object, std::string_view key);

// Reads an optional member; leaves `out` alone when there is none.
Status read(const Json& object, std::string_view key, bool& out);
Status read(const Json& object, std::string_view key, std::string& out);

// Each appends to the spec; a null part is none.
Status read_normalizer(const Json* part, TokenizerSpec& spec);
Status read_pre_tokenizer(const Json* part, TokenizerSpec& spec);
Status read_decoder(const Json* part, TokenizerSpec& spec);
Status read_post_processor(const Json* part, TokenizerSpec& spec);

}  // namespace skein::tokenizer_json
