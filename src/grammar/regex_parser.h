// ECMA-262 patterns, as JSON Schema, Lark and clients write them, to expressions.
//
// A look-ahead is an intersection with the rest of the text, an anchor a condition on what is
// around it. What is not regular, or needs tables that are not here, is refused by name: back
// references, look-behind, word boundaries, property classes.
#pragma once

#include <string_view>

#include "grammar/char_set.h"
#include "grammar/form_error.h"
#include "grammar/regex.h"

namespace skein::grammar {

inline constexpr size_t kMaxPatternBytes = size_t{64} << 10;
inline constexpr uint32_t kMaxPatternDepth = 128;

struct PatternOptions {
  Spelling spelling = Spelling::kUtf8;
  bool anchored = false;     // the whole text must match, as a form does; else a part of it
  bool ignore_case = false;  // of ASCII
  bool dot_all = false;      // a dot takes line ends as well
};

// The expression for all texts that match. The offset of what is wrong is in the message.
FormResult<ExprId> parse_pattern(RegexStore& store, std::string_view pattern,
                                 const PatternOptions& options);

}  // namespace skein::grammar
