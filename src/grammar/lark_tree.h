// A Lark grammar as it is written.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/form_error.h"
#include "grammar/rules.h"

namespace skein::grammar {

struct LarkNode {
  enum class Kind : uint8_t { kOr, kConcat, kRepeat, kName, kExpression, kToken };
  Kind kind;
  size_t at = 0;  // in the text, for messages
  std::string name;
  ExprId expression = kNothing;
  TokenId token = kNoToken;
  uint32_t lo = 0, hi = 0;
  std::vector<std::unique_ptr<LarkNode>> parts;
};
using LarkPtr = std::unique_ptr<LarkNode>;

struct LarkGrammar {
  std::map<std::string, LarkPtr> definitions;  // rules and terminals
  std::vector<LarkPtr> ignored;
};

bool is_terminal_name(std::string_view name);
// `why`, with the line and the column of an offset in the text.
FormError lark_error(std::string_view text, size_t at, std::string_view why, FormCode code);
// Regular expressions go into `store`.
FormResult<LarkGrammar> parse_lark(std::string_view text, RegexStore& store,
                                   const ControlTokens& controls);

}  // namespace skein::grammar
