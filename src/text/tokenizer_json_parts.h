// The parts of a tokenizer.json beside the model: how text is prepared and put together again. Each
// function appends to the spec; a null part is none. Errors name what is not known.
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

struct Pattern {
  std::string text;
  bool is_regex = false;
};
Result<Pattern> pattern_of(const Json& part);

// The type of a part; `what` it is, for the error.
Result<std::string> type_of(const Json& part, std::string_view what);

// Reads all parts of a Sequence, whose list has a name that depends on what it is a sequence of.
Status read_each(const Json& part, std::string_view key, TokenizerSpec& spec,
                 Status (*read_part)(const Json*, TokenizerSpec&));

// Where a Metaspace adds its mark; "add_prefix_space" is the older spelling.
Result<PreTokenizerStep::Prepend> prepend_of(const Json& part);
// A Metaspace may only be U+2581.
Status check_replacement(const Json& part);

Status read_normalizer(const Json* part, TokenizerSpec& spec);
Status read_pre_tokenizer(const Json* part, TokenizerSpec& spec);
Status read_decoder(const Json* part, TokenizerSpec& spec);
Status read_post_processor(const Json* part, TokenizerSpec& spec);

}  // namespace skein::tokenizer_json
