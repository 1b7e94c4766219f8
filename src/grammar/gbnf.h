// GBNF, as llama.cpp reads it, to Rules.
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace skein::grammar {

inline constexpr size_t kMaxGrammarBytes = 1024 * 1024;
inline constexpr uint32_t kMaxGrammarDepth = 128;

// The rule `root` is the whole text. What is wrong is said with line and column.
FormResult<Rules> gbnf_rules(std::string_view text);

}  // namespace skein::grammar
