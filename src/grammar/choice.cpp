#include "grammar/choice.h"

#include <fmt/format.h>

#include "grammar/regex_parser.h"

namespace skein::grammar {
namespace {

Rules one_terminal(Rules rules, ExprId expression) {
  rules.start = rules.add_rule();
  rules.add(rules.start, {Symbol::terminal(rules.add_terminal(expression))});
  return rules;
}

}  // namespace

FormResult<Rules> choice_rules(const std::vector<std::string>& texts) {
  if (texts.size() > kMaxChoices) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("{} choices, at most {}", texts.size(), kMaxChoices), ""};
  }
  Rules rules;
  const ExprId expression = rules.regex->literals(texts);
  if (rules.regex->full()) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("more than {} expressions", kMaxExpressions), ""};
  }
  return one_terminal(std::move(rules), expression);
}

FormResult<Rules> regex_rules(std::string_view pattern) {
  Rules rules;
  PatternOptions options;
  options.anchored = true;
  FormResult<ExprId> expression = parse_pattern(*rules.regex, pattern, options);
  if (!expression.ok()) return expression.error();
  return one_terminal(std::move(rules), *expression);
}

}  // namespace skein::grammar
