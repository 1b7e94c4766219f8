// The simplest forms: one of some texts, or a text that matches a regular expression.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/rules.h"

namespace skein::grammar {

inline constexpr size_t kMaxChoices = 100'000;

FormResult<Rules> choice_rules(const std::vector<std::string>& texts);
FormResult<Rules> regex_rules(std::string_view pattern);

}  // namespace skein::grammar
