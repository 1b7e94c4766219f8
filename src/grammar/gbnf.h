// GBNF, as llama.cpp reads it, to Rules.
//
// `<|name|>` is the control token with that text, `<[id]>` the one with that id. Tokens that are
// named by what they are not (`!<..>`) are refused.
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace skein::grammar {

inline constexpr size_t kMaxGrammarBytes = size_t{1} << 20;
inline constexpr uint32_t kMaxGrammarDepth = 128;

// The rule `root` is the whole text. What is wrong is said with line and column.
FormResult<Rules> gbnf_rules(std::string_view text, const ControlTokens& controls = {});

}  // namespace skein::grammar
