// Which added tokens belong to the chat template alone, whatever the files call them.
//
// A model's file says of every added token whether it is "special", and only special ones are kept
// out of what a user typed. Files are careless about it: DeepSeek's distilled models list the
// markers of their turns as ordinary tokens. Who can type a marker can forge a turn.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer_spec.h"

namespace skein {

// Whether a token is spelled like the border of a turn: <|...|> and <...> with bars on either side
// (plain, full-width, or on one side only), [NAME] and [/NAME] in capitals, <name> and </name> with
// an underscore, and <s>, <bos>, <eos>, <user>, <system>, <assistant>, ... The markers by which
// code is filled in (<|fim_prefix|>, <|repo_name|>, <|file_sep|>, ...) are none: editors write
// them.
bool is_role_marker(std::string_view token);

// Makes markers (TokenType::kMarker) of the added tokens that are not special and either occur in
// one of the template's `literals` or are spelled like role markers. Tokens of white space alone
// are left: every template has line breaks, and they mark nothing.
void guard_markers(std::span<const std::string> literals, TokenizerSpec& spec);

}  // namespace skein
