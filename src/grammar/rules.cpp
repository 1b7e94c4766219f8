#include "grammar/rules.h"

#include <algorithm>
#include <fmt/format.h>

namespace skein::grammar {
namespace {

bool can_finish(const Rules& rules, const Production& production, const std::vector<char>& done) {
  return std::all_of(production.symbols.begin(), production.symbols.end(), [&](const Symbol& s) {
    return s.kind == Symbol::Kind::kTerminal ? rules.terminals[s.index].expression != kNothing
                                             : done[s.index] != 0;
  });
}

// Which rules have an end, by who uses whom, so that the time is linear.
std::vector<char> rules_with_end(const Rules& rules) {
  std::vector<char> done(rules.rules.size(), 0);
  std::vector<std::vector<uint32_t>> users(rules.rules.size());
  std::vector<uint32_t> open;
  const auto try_rule = [&](uint32_t rule) {
    if (done[rule]) return;
    for (const Production& production : rules.rules[rule]) {
      if (!can_finish(rules, production, done)) continue;
      done[rule] = 1;
      open.push_back(rule);
      return;
    }
  };
  for (uint32_t rule = 0; rule < rules.rules.size(); ++rule) {
    for (const Production& production : rules.rules[rule]) {
      for (const Symbol& symbol : production.symbols) {
        if (symbol.kind == Symbol::Kind::kRule) users[symbol.index].push_back(rule);
      }
    }
  }
  for (uint32_t rule = 0; rule < rules.rules.size(); ++rule) try_rule(rule);
  while (!open.empty()) {
    const uint32_t rule = open.back();
    open.pop_back();
    for (const uint32_t user : users[rule]) try_rule(user);
  }
  return done;
}

}  // namespace

// Nothing empty is guarded: whether a rule may be empty must not depend on a count.
Symbol counted_list(Rules& rules, const Symbol& item, uint32_t lo, uint32_t hi) {
  const uint32_t list = rules.add_rule();
  const uint32_t limit = hi == kUnbounded ? lo : hi;
  if (lo == 0) rules.rules[list].push_back({.symbols = {}});
  if (lo > 0) rules.rules[list].push_back({.symbols = {item}, .least = lo - 1});
  const uint32_t more = lo == 0 ? 1 : 2;  // items that another round makes at least
  if (hi >= more) {
    rules.rules[list].push_back({.symbols = {item, Symbol::inheriting(list)},
                                 .most = hi == kUnbounded ? kUnbounded : hi - more,
                                 .raise_to = limit});
  }
  return Symbol::rule(list);
}

FormResult<Rules> finished_rules(Rules rules) {
  RegexStore& regex = *rules.regex;
  uint64_t symbols = 0;
  for (const auto& rule : rules.rules) {
    for (const Production& production : rule) symbols += production.symbols.size() + 1;
  }
  if (symbols > kMaxSymbols) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("{} grammar symbols, at most {}", symbols, kMaxSymbols), ""};
  }
  for (Terminal& terminal : rules.terminals) {
    if (regex.live(terminal.expression) == Answer::kNo) terminal.expression = kNothing;
  }
  if (regex.full()) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("more than {} expressions", kMaxExpressions), ""};
  }
  if (regex.question_failed()) {
    return FormError{
        FormCode::kTooComplex,
        fmt::format("a search of more than {} expressions or {} steps", kSearchLimit, kSearchWork),
        ""};
  }
  const std::vector<char> done = rules_with_end(rules);
  for (auto& rule : rules.rules) {
    std::erase_if(rule, [&](const Production& p) { return !can_finish(rules, p, done); });
  }
  if (!done[rules.start]) {
    return FormError{FormCode::kUnsatisfiableSchema, "no text can match", ""};
  }
  return rules;
}

}  // namespace skein::grammar
