// Lark grammars, as OpenAI's custom tools and llguidance take them, to Rules.
//
// Lower-case names are rules, upper-case names terminals, which are regular and cannot contain
// themselves. There is no longest match: a text is in the language if the rules can make it.
// `%ignore` allows its terminal in front of every terminal of a rule and at the end. Templates,
// `%declare` and imports from elsewhere than `common` are refused by name. `<|name|>` in a rule is
// the control token with that text, `<[id]>` the one with that id.
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace skein::grammar {

FormResult<Rules> lark_rules(std::string_view text, const ControlTokens& controls = {});

// Adds a grammar's rules to what is there; the rule that is the whole text. `in_json_string`: as
// the text stands there. Where it fails, what was there is lost.
FormResult<uint32_t> append_lark(Rules& rules, std::string_view text, bool in_json_string);

}  // namespace skein::grammar
